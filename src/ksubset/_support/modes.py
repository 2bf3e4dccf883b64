"""What a program may have set in torch for itself, and no fit should depend on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["default_modes"]


_lock = threading.Lock()
# The default of the program, once for each fit under way, as there may be several in threads.
_dtypes: list[torch.dtype] = []


@contextmanager
def default_modes() -> Iterator[None]:
    """With gradients and float32, as torch starts, and afterwards as it was; of a function, when it decorates one."""
    with _lock:
        _dtypes.append(_dtypes[0] if _dtypes else torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        with _lock:
            dtype = _dtypes.pop()
            if not _dtypes:
                torch.set_default_dtype(dtype)
