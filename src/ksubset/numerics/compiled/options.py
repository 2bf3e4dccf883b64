"""How loops are compiled: once for each machine, and kept in a cache."""

from typing import Any

from numpy.typing import NDArray

__all__ = ["EXACT", "SUMS", "Array"]

Array = NDArray[Any]

EXACT: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True}
# Sums may be taken in another order, four or eight terms at a time; infinity and NaN keep their meaning.
SUMS: dict[str, Any] = {**EXACT, "fastmath": {"reassoc", "contract", "nsz"}}
