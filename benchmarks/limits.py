"""What the machine can do at best: matrix products, copies, and how many operations a computation has."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import seconds


@functools.cache
def product_rate(device: str) -> float:
    """Operations per second of a large matrix product: bfloat16 on a GPU, float32 on the CPU."""
    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    a, b = (torch.randn((size, size), device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, device)


@functools.cache
def copy_rate(device: str) -> float:
    """Bytes per second, read and written, of a large copy."""
    source = torch.empty(2**30 if device == "cuda" else 2**26, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source), device)


def operations(call: Callable[[], Any]) -> dict[str, int]:
    """Operations (a product and a sum are two) of the matrix products and of the attention of a call.

    Attention is computed as products of small matrices meanwhile, which sets it apart from the rest.
    """
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        call()
    counts = {str(name): int(count) for name, count in counter.get_flop_counts()["Global"].items()}
    attention = sum(count for name, count in counts.items() if "bmm" in name)
    return {"products": sum(counts.values()) - attention, "attention": attention}


def count(call: Callable[[], Any]) -> int:
    """All operations of a call."""
    return sum(operations(call).values())


class Memory:
    """The most memory in use while the block runs, in bytes: of the device, or of the process on the CPU."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.peak: int | None = None
        self._before: int | None = None

    def __enter__(self) -> "Memory":
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        else:
            self._before = _resident("VmRSS")
            _reset_resident_peak()
        return self

    def __exit__(self, *error: object) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            self.peak = torch.cuda.max_memory_allocated() - (self._before or 0)
        elif self._before is not None and (peak := _resident("VmHWM")) is not None:
            self.peak = max(0, peak - self._before)


def _resident(name: str) -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
    except (OSError, StopIteration):
        return None


def _reset_resident_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass
