"""Ctrl-C that cuts nothing in two."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

__all__ = ["Interrupt"]


class Interrupt:
    """Turns the first Ctrl-C within the context into a request; a second one is not waited for.

    Attributes:
        requested: Whether there was one.
    """

    requested = False

    def __enter__(self) -> Self:
        self._at_once = False
        # Python delivers signals to the main thread, and lets no other one install handlers. A program keeps a handler
        # of its own, and so does one that ignores Ctrl-C, as with nohup.
        in_main = threading.current_thread() is threading.main_thread()
        self._active = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._active:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._previous)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, a Ctrl-C is a KeyboardInterrupt, as is one that came before."""
        self._at_once = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _handle(self, *_: object) -> None:
        if self.requested or self._at_once:
            raise KeyboardInterrupt
        self.requested = True
