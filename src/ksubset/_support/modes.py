"""What a program may have set in torch for itself, and no fit should depend on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["default_modes"]


@contextmanager
def default_modes() -> Iterator[None]:
    """With gradients and float32, as torch starts, and afterwards as it was; of a function, when it decorates one."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
