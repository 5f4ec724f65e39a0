"""Ctrl-C and SIGTERM: how a long computation hears of them, and which exit code a command ends with."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_received: list[int] = []


class Terminated(BaseException):
    """SIGTERM came where nothing was to be saved."""


@contextmanager
def interruptions() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a set event; a second one acts as it did before."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield event
        return
    handlers = ((int(number), signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM))
    before = {number: handler for number, handler in handlers if handler is not signal.SIG_IGN}

    def stop(number: int, frame: FrameType | None) -> None:
        event.set()
        _received.append(number)
        signal.signal(number, before[number] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, stop)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` on SIGTERM, so that what is half written is removed; for a command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received.clear()

    def terminate(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def has_come() -> bool:
    """Whether a Ctrl-C or SIGTERM has come that something here waits for, or that ended the command."""
    return bool(_received)


def was_stopped(error: BaseException | None) -> bool:
    """Whether Ctrl-C or SIGTERM is what an error comes from.

    Python wraps the one that a signal raises into another error where it comes at an odd moment, such as
    while a class is being made.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt | Terminated):
            return True
        error = error.__cause__ or error.__context__
    return False


def exit_code() -> int:
    """The exit code of a command that a signal has ended: 143 after SIGTERM, else 130."""
    return 143 if signal.SIGTERM in _received else 130
