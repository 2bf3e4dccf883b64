"""What a selector leaves to its model: predictions, tags, and metadata."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ksubset.selection._sklearn import raise_for_params, routing_enabled
from ksubset.selection.groups import SupportMixin, is_dataframe, take_columns

__all__ = ["DelegatingMixin", "classifies", "regresses", "tags_of"]


def _delegates(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), method)


def tags_of(estimator: Any) -> Tags | None:
    """Tags of an estimator; None of one that was written for scikit-learn before 1.6 and has none."""
    try:
        return get_tags(estimator)
    except (AttributeError, TypeError):
        return None


def classifies(estimator: Any) -> bool:
    """Whether an estimator is a classifier, however old its way to say so."""
    if tags_of(estimator) is None:
        return getattr(estimator, "_estimator_type", None) == "classifier"
    return bool(is_classifier(estimator))


def regresses(estimator: Any) -> bool:
    """Whether an estimator is a regressor, however old its way to say so."""
    if tags_of(estimator) is None:
        return getattr(estimator, "_estimator_type", None) == "regressor"
    return bool(is_regressor(estimator))


class DelegatingMixin(SupportMixin):
    """A selector with a model `estimator`, fitted to the columns `support_` as `estimator_`, that predicts by it."""

    estimator: Any
    scoring: Any
    cv: Any
    outer_cv: Any
    estimator_: Any
    _takes_missing = False
    """Whether the model itself took missing values in an array, whatever its tags say."""

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes, if the model has them."""
        classes: NDArray[Any] = self.estimator_.classes_
        return classes

    @available_if(_delegates("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any, **params: Any) -> Any:
        """Predictions of the model for data `(N, n)` with all columns."""
        return self._call("predict", X, (), params)

    @available_if(_delegates("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, by the model, for data `(N, n)` with all columns."""
        return self._call("predict_proba", X, (), {})

    @available_if(_delegates("predict_log_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the probabilities of the classes, by the model, for data `(N, n)` with all columns."""
        return self._call("predict_log_proba", X, (), {})

    @available_if(_delegates("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Decision function of the model for data `(N, n)` with all columns."""
        return self._call("decision_function", X, (), {})

    @available_if(_delegates("score"))  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Score of the model, by its own `score`, for data `(N, n)` with all columns."""
        return self._call("score", X, () if y is None else (y,), params)

    def _call(self, method: str, data: Any, target: tuple[Any, ...], params: dict[str, Any]) -> Any:
        check_is_fitted(self)
        raise_for_params(params, self, method)
        own = process_routing(self, method, **params)["estimator"][method]
        return getattr(self.estimator_, method)(self._selected(self._check_features(data, reset=False)), *target, **own)

    def _selected(self, data: Any) -> Any:
        return take_columns(data, np.flatnonzero(self.support_))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        own = tags_of(self.estimator)
        if own is None:
            return tags
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = deepcopy(own.classifier_tags), deepcopy(own.regressor_tags)
        # Few columns may predict little, however good the model.
        for kind in filter(None, (tags.classifier_tags, tags.regressor_tags)):
            kind.poor_score = True
        tags.target_tags = deepcopy(own.target_tags)
        tags.input_tags.sparse = own.input_tags.sparse
        tags.input_tags.allow_nan = own.input_tags.allow_nan or self._takes_missing
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Where metadata goes: to `fit`, `predict` and `score` of the model, to the scorer and to the splitters."""
        own = MethodMapping()
        for method in ("fit", "predict", "score"):
            own.add(caller=method, callee=method)
        splits, scores = (MethodMapping().add(caller="fit", callee=method) for method in ("split", "score"))
        router = MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=own)
        # What is no splitter asks for nothing, as KFold does; to look into a generator would use it up.
        outer_cv = self.cv if self.outer_cv is None else self.outer_cv
        for name, splitter in (("splitter", self.cv), ("outer_splitter", outer_cv)):
            router.add(**{name: splitter if hasattr(splitter, "split") else KFold()}, method_mapping=splits)
        return router.add(scorer=check_scoring(self.estimator, scoring=self.scoring), method_mapping=scores)

    def _routed(self, params: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Metadata for the model's `fit`, the scorer, the splitter and the outer one."""
        if not routing_enabled():
            own = dict(params)
            groups = own.pop("groups", None)
            split_params = {} if groups is None else {"groups": groups}
            return own, {}, split_params, split_params
        routed = process_routing(self, "fit", **params)
        splits = (routed[name]["split"] for name in ("splitter", "outer_splitter"))
        return routed["estimator"]["fit"], routed["scorer"]["score"], *splits

    def _check_features(self, data: Any, *, reset: bool) -> Any:
        if is_dataframe(data):
            return validate_data(self, data, reset=reset, skip_check_array=True)
        return validate_data(self, data, reset=reset, dtype=None, accept_sparse="csc", ensure_all_finite=False)
