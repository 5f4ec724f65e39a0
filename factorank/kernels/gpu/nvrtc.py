"""CUDA C at run time: compile with NVRTC, load and launch through the driver.

Both libraries come with torch and the GPU driver; no toolkit, compiler or extra package is needed. Kernels go
on torch's current stream, so that they are ordered with its work and can be captured in a CUDA graph.
"""

import contextlib
import ctypes
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


class Kernel:
    """A loaded kernel, for the device that is current when it is loaded."""

    def __init__(self, source: str, name: str, options: Sequence[str]) -> None:
        capability = torch.cuda.get_device_capability()
        image = _compile(source, [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", *options])
        torch.cuda.current_stream().synchronize()  # makes sure that torch's context is current
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(_driver().cuModuleLoadData(ctypes.byref(module), image))
        _check(_driver().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()))
        self._shared = 48 << 10

    def __call__(self, grid: int, block: int, shared: int, *arguments: Any) -> None:
        """Launch. Arguments are ctypes values; tensors are passed by :func:`pointer`."""
        if shared > self._shared:  # attribute 8: the dynamic shared memory a block may ask for
            _check(_driver().cuFuncSetAttribute(self._function, 8, shared))
            self._shared = shared
        packed = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = (grid, 1, 1, block, 1, 1, shared)
        _check(_driver().cuLaunchKernel(self._function, *shape, stream, packed, None))


def pointer(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(0 if tensor is None else tensor.data_ptr())


def _compile(source: str, options: Sequence[str]) -> bytes:
    nvrtc, program, name = _nvrtc(), ctypes.c_void_p(), b"kernel.cu"
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name, 0, None, None), "NVRTC")
    encoded = [option.encode() for option in options]
    status = nvrtc.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded))
    size = ctypes.c_size_t()
    if status:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"NVRTC refused the kernel: {log.value.decode()}")
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "NVRTC")
    image = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, image), "NVRTC")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw


def _check(status: int, what: str = "CUDA driver") -> None:
    if status:
        raise RuntimeError(f"{what} error {status}")


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


@functools.cache
def _nvrtc() -> ctypes.CDLL:
    """NVRTC of torch's CUDA version: already loaded, on the loader's path, or among torch's wheels."""
    major = str(torch.version.cuda).split(".")[0]
    name = f"nvrtc64_{major}0_0.dll" if sys.platform == "win32" else f"libnvrtc.so.{major}"
    wheels = Path(torch.__file__).parent.parent / "nvidia"
    for candidate in (name, *(str(path) for path in sorted(wheels.glob(f"*/*/{name}")))):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(candidate)
    raise OSError(f"there is no {name} on the path of the loader or beside torch")
