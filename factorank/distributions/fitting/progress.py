"""A progress bar, on a terminal."""

from collections.abc import Iterator


def rounds(count: int, progress: bool, what: str) -> Iterator[int]:
    """``range(count)``, with a bar that shows rate and estimate."""
    if not progress:
        yield from range(count)
        return
    from tqdm import tqdm

    yield from tqdm(range(count), unit=f" {what}", disable=None)  # None: only on a terminal
