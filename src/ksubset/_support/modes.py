"""What a program may have set in torch for itself, and no fit should depend on."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

__all__ = ["default_modes"]


_lock = threading.Lock()
# The default of the program, once for each fit under way, as there may be several in threads.
_dtypes: list[torch.dtype] = []


@contextmanager
def default_modes() -> Iterator[None]:
    """As torch starts: gradients, float32, no autocast, tensors on the CPU unless a device is named; then as it was.

    Of a function, when it decorates one.
    """
    with _lock:
        _dtypes.append(_dtypes[0] if _dtypes else torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
    try:
        with ExitStack() as modes:
            modes.enter_context(torch.inference_mode(False))
            modes.enter_context(torch.enable_grad())
            for device in ("cpu", "cuda"):
                modes.enter_context(torch.autocast(device, enabled=False))
            # Only where it is another, as all calls are slower within.
            if torch.get_default_device().type != "cpu":
                modes.enter_context(torch.device("cpu"))
            yield
    finally:
        with _lock:
            dtype = _dtypes.pop()
            if not _dtypes:
                torch.set_default_dtype(dtype)
