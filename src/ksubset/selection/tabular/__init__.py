"""Select columns of a file."""

from ksubset._support.extras import require

for _module in ("pandas", "pyarrow", "threadpoolctl"):
    require(_module, "selection")
