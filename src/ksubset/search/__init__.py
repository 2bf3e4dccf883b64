"""Choose k of n items for any function. Needs the extra ``search``."""

from ksubset._support.extras import require

for _package in ("numpy", "scipy", "joblib"):
    require(_package, "search")

from ksubset.search.constraints import Apart, AtLeast, AtMost, Budget, Constraint, Exactly, Inequalities  # noqa: E402
from ksubset.search.minimize import minimize  # noqa: E402
from ksubset.search.results import SearchProgress, SearchResult  # noqa: E402
from ksubset.search.search import Search  # noqa: E402

__all__ = [
    "Apart",
    "AtLeast",
    "AtMost",
    "Budget",
    "Constraint",
    "Exactly",
    "Inequalities",
    "Search",
    "SearchProgress",
    "SearchResult",
    "minimize",
]
