"""Criteria of optimal experimental design, and their relaxed optima, which bound every design. Needs the extra
``selection``.
"""

from ksubset._support.extras import require

require("numpy", "selection")
