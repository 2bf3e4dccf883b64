"""Loops over single items, compiled by numba: taken on the CPU where numba is installed (the extra `fast`).

Each has a twin in eager torch, which is taken elsewhere, and which the tests hold it to.
"""

import functools
import importlib.util

import torch
from torch import Tensor

from ksubset.numerics.checks import inside_transform

__all__ = ["CLEAR", "SMALL", "TINY", "usable"]

# Of all numbers that are told from zero: below it digits are lost.
TINY = 1e-300
# A smaller normaliser, beside a largest weight of 1, would make weights below TINY matter.
SMALL = 1e-30
# A row that has hardly any choice is better off with the quadrature, which has all digits of the little that is left.
CLEAR = 1e-3


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("numba") is not None


def usable(logits: Tensor) -> bool:
    """Whether compiled loops can read this tensor: it is on the CPU, its values are there, and nobody records what is
    done with them, which would take what the loops find for constants.
    """
    # There is no public way to ask for modes that record.
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]  # missing in torch's types
    recorded = tracing or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
    return logits.is_cpu and not (recorded or inside_transform()) and _installed()
