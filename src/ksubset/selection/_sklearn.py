"""Names that scikit-learn does not promise to keep, in the one place to look at when it has a new version."""

from sklearn.metrics import get_scorer
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._set_output import _get_output_config as get_output_config
from sklearn.utils.metadata_routing import _raise_for_params as raise_for_params
from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled
from sklearn.utils.validation import _check_feature_names_in as check_feature_names_in
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _num_samples as num_rows

__all__ = [
    "check_feature_names_in", "check_method_params", "check_sample_weight", "get_output_config", "num_rows",
    "raise_for_params", "routing_enabled", "safe_indexing", "scores_numbers",
]  # fmt: skip


def scores_numbers(scoring: str) -> bool:
    """Whether a scorer is one of predicted numbers, and not of classes."""
    return str(get_scorer(scoring)._score_func.__module__) == "sklearn.metrics._regression"
