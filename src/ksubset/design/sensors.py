"""The scikit-learn selector that places exactly k sensors in a field."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv, cross_val_score
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ksubset.design.criteria import Array, Indices
from ksubset.design.decoding import Decoding
from ksubset.design.placement import grown, pivots, swapped
from ksubset.search import Constraint, minimize
from ksubset.search.arguments import check_integer, check_nonnegative
from ksubset.search.space import SearchSpace

__all__ = ["SensorSelector"]

_METHODS = ("search", "greedy", "qr")
_EVALUATIONS, _FITS = 2000, 100


class SensorSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Place k sensors: those from which the whole field, or what is asked of it, is told with the least error.

    Sets of sensors are compared by errors on snapshots that had no part in the decoder: of linear decoding the
    leave-one-out error, in closed form and for all places at once, and of any other estimator the cross-validated one.

    Arguments:
        n_sensors: Sensors to place, k.
        estimator: What is fitted to their readings. None is a linear decoder with a ridge. A regressor decodes the
            field nonlinearly, by way of the amplitudes of its POD modes; with y, a regressor or classifier predicts y.
        method: "qr" takes pivots of the POD modes, as is usual, and looks at no error; "greedy" adds the sensor with
            the least error of linear decoding each time, and then gives each the best place; "search" gives each of
            both sets the best places and goes on from there by `ksubset.search.minimize`, on the estimator's error.
        n_modes: POD modes, for pivots and for nonlinear decoding. None is as many as sensors for pivots, and as many
            as hold 99.9 % of the variance for decoding.
        noise: Standard deviation of the noise of the sensors, in units of X: the expected error under it is
            minimised. None is for readings as they are; the ridge is then the one with the least leave-one-out error.
        scoring: With an estimator, a scorer or the name of one, for "search"; None is the mean squared error of the
            field, or with y the estimator's own.
        cv: With an estimator, folds for "search", a number, a splitter, or an iterable of splits.
        max_evaluations: Sets that are scored in "search", apart from swaps; None is 2,000, or 100 with an estimator.
        always: Places that have a sensor, which count towards k.
        exclude: Places that cannot have one, such as a forbidden region.
        constraints: What else a set has to fulfil: `AtMost`, `AtLeast`, `Exactly` (so many in a region), `Budget`
            (costs) and `Apart` (a least distance) of `ksubset.search`.
        random_state: Seed of the search.

    Attributes:
        support_: `(n)`, boolean, the places that have a sensor.
        sensors_: Their indices, ascending, `(k)`.
        error_: Leave-one-out error of linear decoding from them, as a share of the norm of the fluctuations.
        mean_: Mean of the field, `(n)`.
        coef_: Without an estimator, the decoder's coefficients, `(k, n)`, or for y `(k)` or `(k, c)`.
        estimator_: The estimator, fitted to readings `(m, k)`; None without one.
        modes_: With an estimator and without y, orthonormal POD modes, `(r, n)`.
        n_features_in_: Places, n.

    Raises:
        TypeError, ValueError: On `fit`, for arguments of a wrong kind or out of range, and constraints that leave no
            set; the message names them.

    References:
        Manohar, Brunton, Kutz and Brunton (2018), Data-driven sparse sensor placement for reconstruction,
        https://doi.org/10.1109/MCS.2017.2767460.
        Brunton, Brunton, Proctor and Kutz (2016), Sparse sensor placement optimization for classification,
        https://doi.org/10.1137/15M1036713.

    Example:
        >>> place = np.linspace(0, 1, 200)
        >>> amplitudes = np.random.default_rng(0).normal(size=(50, 4))
        >>> X = amplitudes @ np.sin(np.outer(np.arange(1, 5) * np.pi, place))
        >>> selector = SensorSelector(4, max_evaluations=100, random_state=0).fit(X)
        >>> readings = selector.transform(X)
        >>> bool(np.allclose(selector.reconstruct(readings), X, atol=1e-3))
        True
    """

    def __init__(
        self,
        n_sensors: int,
        *,
        estimator: Any = None,
        method: str = "search",
        n_modes: int | None = None,
        noise: float | None = None,
        scoring: Any = None,
        cv: Any = 5,
        max_evaluations: int | None = None,
        always: Iterable[int] = (),
        exclude: Iterable[int] = (),
        constraints: Sequence[Constraint] = (),
        random_state: Any = None,
    ) -> None:
        self.n_sensors, self.estimator, self.method, self.n_modes = n_sensors, estimator, method, n_modes
        self.noise, self.scoring, self.cv, self.max_evaluations = noise, scoring, cv, max_evaluations
        self.always, self.exclude, self.constraints = always, exclude, constraints
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "SensorSelector":
        """Place the sensors, and fit what tells the field or y from them.

        Arguments:
            X: Snapshots of the field at all places, `(m, n)`.
            y: What is to be predicted, `(m)` or `(m, c)`; None for the field itself.
        """
        if self.method not in _METHODS:
            raise ValueError(f"method: expected one of {', '.join(_METHODS)}, got {self.method!r}")
        noise = None if self.noise is None else check_nonnegative("noise", self.noise)
        modes = self.n_modes
        if modes is not None:
            modes = check_integer("n_modes", modes, 1)
        size = check_integer("n_sensors", self.n_sensors, 1)
        for name in ("always", "exclude", "constraints"):
            if isinstance(getattr(self, name), Iterator):
                raise TypeError(f"{name}: expected a sequence, as each fit reads it again, got {getattr(self, name)!r}")
        data = validate_data(self, X, dtype=np.float64, ensure_min_samples=3)
        if size > data.shape[1]:
            raise ValueError(f"n_sensors: expected at most {data.shape[1]}, as many as places, got {size}")
        space = SearchSpace(
            data.shape[1], size, always=self.always, exclude=self.exclude, constraints=self.constraints
        )  # fmt: skip
        self.mean_ = data.mean(0)
        if not (data != data[0]).any():
            raise ValueError("X: expected snapshots that differ, got the same field in all of them")
        if y is None and self.estimator is not None and is_classifier(self.estimator):
            raise ValueError(f"y: expected the classes that {self.estimator!r} tells apart, got None")
        target = None if y is None else self._target(y, data)
        told = data if target is None else self._numbers(target)
        if not (told != told[0]).any():
            raise ValueError(f"y: expected values that differ, got {told[0].tolist()} for all snapshots")
        readings, unit = _in_units(data - self.mean_)
        wanted, unit_wanted = _in_units(told - told.mean(0))
        decoding = Decoding(readings, wanted, None if noise is None else noise / unit)
        basis, strengths = _pod(data - self.mean_)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.modes_ = None
        if self.estimator is not None and target is None:
            variances = np.square(strengths / strengths[0])
            held = np.cumsum(variances) / variances.sum()
            self.modes_ = basis[: int(np.searchsorted(held, 0.999)) + 1 if modes is None else modes]
            target = (data - self.mean_) @ self.modes_.T
        place = self._placed(data, target, decoding, basis[: size if modes is None else modes].T, space, seed)
        sensors = torch.from_numpy(space.items(place))
        decoding.choose_ridge(sensors)
        self.sensors_: Indices = sensors.numpy()
        self.support_: NDArray[np.bool_] = np.isin(np.arange(data.shape[1]), self.sensors_)
        self.error_ = decoding.told(sensors) ** 0.5
        self.estimator_ = None
        if self.estimator is None:
            coefficients = decoding.coefficients(sensors, wanted).numpy() * (unit_wanted / unit)
            one = target is not None and target.ndim == 1
            self._offset = told.mean(0)[0] if one else told.mean(0)
            self.coef_: Array = coefficients[:, 0] if one else coefficients
        else:
            self.estimator_ = clone(self.estimator).fit(data[:, self.sensors_], target)
        return self

    def _target(self, y: Any, data: Array) -> Any:
        target = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(data, target)
        return target

    def _numbers(self, target: Any) -> Array:
        """Targets of linear decoding: y itself, or indicators of its classes."""
        if self.estimator is not None and is_classifier(self.estimator):
            if target.ndim > 1:
                raise ValueError(f"y: expected one label for each snapshot, got shape {target.shape}")
            if len(np.unique(target)) < 2:
                raise ValueError(f"y: expected two classes or more, got {np.unique(target).tolist()}")
            return np.asarray(LabelBinarizer().fit_transform(target), dtype=np.float64)
        if target.dtype.kind not in "fiub":
            raise ValueError(f"y: expected numbers, or an estimator that classifies, got {target.dtype}")
        return np.asarray(target, dtype=np.float64).reshape(len(target), -1)

    def _placed(
        self, data: Array, target: Any, decoding: Decoding, modes: Array, space: SearchSpace, seed: int
    ) -> Indices:
        first = pivots(modes, space, seed)
        if self.method == "qr":
            return first
        decoding.choose_ridge(torch.from_numpy(space.items(first)))
        # Of one ridge, as both together would follow the snapshots too closely.
        settled = swapped(decoding, space, grown(decoding, space, seed))
        if self.method == "greedy":
            return settled
        starts = np.unique([space.items(one) for one in (first, settled, swapped(decoding, space, first))], axis=0)
        limit = self.max_evaluations
        if limit is None:
            limit = _EVALUATIONS if self.estimator is None else _FITS
        loss = self._linear_loss(decoding) if self.estimator is None else self._loss(data, target)
        best = minimize(
            loss, space.num_items, space.size, vectorized=self.estimator is None, max_evaluations=limit,
            always=self.always, exclude=self.exclude, constraints=self.constraints, initial=starts, random_state=seed,
        )  # fmt: skip
        point = space.point("subset", best.subset)
        return point if self.estimator is not None else swapped(decoding, space, point)

    @staticmethod
    def _linear_loss(decoding: Decoding) -> Callable[[Indices], Array]:
        return lambda subsets: decoding.errors(torch.from_numpy(subsets)).numpy()

    def _loss(self, data: Array, target: Any) -> Callable[[Indices], float]:
        # Modes are orthonormal: squared errors of their amplitudes are those of the field.
        usual = None if self.modes_ is None else "neg_mean_squared_error"
        scorer = check_scoring(self.estimator, scoring=usual if self.scoring is None else self.scoring)
        # The same for all sets of sensors, also where they are drawn.
        folds = list(check_cv(self.cv, target, classifier=is_classifier(self.estimator)).split(data, target))
        if not folds:
            raise ValueError(f"cv: expected folds, got none from {self.cv!r}")

        def loss(subset: Indices) -> float:
            scores = cross_val_score(clone(self.estimator), data[:, subset], target, scoring=scorer, cv=folds)
            return -float(scores.mean())

        return loss

    def predict(self, X: Any) -> Any:
        """The field, or y, from its values at the sensors.

        Arguments:
            X: Snapshots at all places, `(N, n)`, of which the sensors' values are used.

        Returns:
            The field `(N, n)`, or what was y.
        """
        check_is_fitted(self)
        return self.reconstruct(validate_data(self, X, reset=False, dtype=np.float64)[:, self.sensors_])

    def reconstruct(self, readings: Any) -> Any:
        """The field, or y, from readings of the sensors.

        Arguments:
            readings: `(N, k)`, in the order of `sensors_`.

        Returns:
            The field `(N, n)`, or what was y.
        """
        check_is_fitted(self)
        values = check_array(readings, dtype=np.float64, input_name="readings")
        if values.shape[1] != len(self.sensors_):
            raise ValueError(f"readings: expected {len(self.sensors_)} columns, one a sensor, got {values.shape[1]}")
        if self.estimator_ is None:
            return self._offset + (values - self.mean_[self.sensors_]) @ self.coef_
        told = self.estimator_.predict(values)
        return told if self.modes_ is None else self.mean_ + told.reshape(len(values), -1) @ self.modes_

    def score(self, X: Any, y: Any = None) -> float:
        """Share of the variance that is told, about the mean of the snapshots that were fitted; with y the estimator's.

        Arguments:
            X: Snapshots at all places, `(N, n)`.
            y: As of `fit`.
        """
        check_is_fitted(self)
        if self.estimator_ is not None and self.modes_ is None:
            return float(self.estimator_.score(self.transform(X), y))
        told = self.predict(X)
        right = check_array(X if y is None else y, ensure_2d=False, dtype=np.float64, input_name="y")
        if len(right) != len(told) or right.size != told.size:
            raise ValueError(f"y: expected shape {told.shape}, got {None if y is None else right.shape}")
        right = right.reshape(told.shape)
        middle = self.mean_ if y is None else self._offset
        whole, unit = _in_units(right - middle)
        return float(1 - np.square((right - told) / unit).sum() / np.square(whole.numpy()).sum())

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_


def _in_units(values: Array) -> tuple[torch.Tensor, float]:
    """Values and their unit: a power of two near the largest, so that squares neither overflow nor vanish."""
    unit = 2.0 ** (math.frexp(float(np.abs(values).max()))[1] - 1)
    # Torch asks for an order of memory, and for the right to write, that values of a data frame need not have.
    return torch.from_numpy(np.require(values / unit, requirements=["C", "W"])), unit


def _pod(centred: Array) -> tuple[Array, Array]:
    """Modes `(r, n)` of snapshots `(m, n)` without those of rounding alone, and their strengths `(r)`."""
    _, strengths, modes = np.linalg.svd(centred, full_matrices=False)
    rank = max(1, int((strengths > 1e-10 * strengths[0]).sum()))
    return modes[:rank], strengths[:rank]
