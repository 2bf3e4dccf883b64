"""The scikit-learn selector that trains a network and finds its k columns at once."""

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, Tags, gen_batches
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.random import fork_rng

from ksubset._support.modes import default_modes
from ksubset.estimators import Estimator
from ksubset.search.arguments import check_integer, is_integer, listed_callbacks, notify
from ksubset.selection._sklearn import check_feature_names_in, check_sample_weight
from ksubset.selection.arguments import check_target, seed_of
from ksubset.selection.co_inclusion import CoInclusion, joint_probabilities, likeliest
from ksubset.selection.groups import SubsetSpace, SupportMixin, is_constant, take_rows
from ksubset.selection.neural.batches import Scaling
from ksubset.selection.neural.networks import check_outputs, device_of, new_network
from ksubset.selection.neural.targets import Data, Target, target_of, task_of
from ksubset.selection.neural.training import Recipe, Training, clipped
from ksubset.training import load, save, seeded

__all__ = ["NeuralSubsetSelector"]

_CHUNK = 1024
# Arguments that may differ where a fit goes on from its checkpoint: what is told, and when it ends, changes no step; a
# file may have been moved, and so may a training, to another device; and modules count as what was made of them.
_NO_IDENTITY = {"verbose", "callbacks", "checkpoint", "device", "module", "gradient_estimator"}


def _classifies(self: "NeuralSubsetSelector") -> bool:
    return bool(getattr(self, "task_", self.task) == "classification")


class NeuralSubsetSelector(SupportMixin, BaseEstimator):  # type: ignore[misc]
    """Train a network that sees k columns, and learn which.

    Every example of a batch is shown with a k-subset of its columns, the others masked. The subsets are drawn from one
    distribution, whose logits are trained together with the network; k falls to its value on the way, and at last the
    network alone is trained, on the likeliest columns. All columns are tried in one training, so that it takes one
    where to fit a model for each subset would take thousands.

    Columns are standardised in `fit`, so that a masked one shows its mean, 0, and are cut at 5 standard deviations.
    Rows of sparse data are made dense batch by batch. Columns with one value in all rows are left out as long as there
    are others. The order of the rows does not matter, and a row of weight 2 is the same as the row twice. While it
    is trained alone the weights of the network decay, the faster the fewer rows there are, lest it learn them by heart.

    Arguments:
        n_features_to_select: Columns to keep, k; of `feature_groups` the number of groups.
        task: "classification", "regression" or "reconstruction", of all columns from those that are kept, which needs
            no y. None takes reconstruction if there is no y, regression if y is of floats with fractions, or with more
            than 20 values, and classification otherwise.
        module: The network: a module that maps `(N, n)` inputs, 0 where a column is masked, to `(N, outputs)`, which
            is copied; or a function that makes one of (n, outputs). Outputs are one for each class or label (of
            several targets the classes of the first come first), target, or, in a reconstruction, column. None is a
            perceptron with ReLU.
        hidden_layer_sizes: Widths of its hidden layers, if `module` is None.
        gradient_estimator: Of the gradient for the logits, of `ksubset.estimators`. None is `LeaveOneOut()`, which
            needs no gradients by the inputs; with the perceptron it is `SIMPLE()` until subsets have k columns.
        num_samples: Subsets of each example in a step.
        steps: Steps of the optimizer, on `batch_size` rows each: the length of the training.
        batch_size: Rows in a step; of fewer rows each is drawn several times.
        learning_rate, logits_learning_rate: Of the network and of the logits; both fall along a cosine.
        feature_groups: Sequences of columns, by name or index, that stand or fall together; they must not overlap.
        always_include: Columns, by name or index, that are kept, with their groups; they count towards k.
        exclude: Columns, by name or index, that are not, nor are their groups.
        device: Where to train; None is the GPU if CUDA has one, else the CPU.
        random_state: Seed; with it a fit on the CPU always has the same result, but not beside other threads that draw
            torch's random numbers.
        verbose: Above 0, prints some fifty lines.
        callbacks: A function or several, called as often with a `TrainingProgress`; if one returns True, the training
            ends with the likeliest columns at present. So it does, with a warning, on KeyboardInterrupt.
        warm_start: Whether another fit goes on with the logits and the network of the last.
        checkpoint: Path of a file to which the training is written as often. Another fit with the same data and
            settings goes on from there, with the result of one that was not ended; a file of others, as in a
            cross-validation, is an error.

    Attributes:
        support_: `(n)`, boolean, the columns that are kept.
        n_features_: Their number.
        n_features_in_, feature_names_in_: Of the data.
        inclusion_probabilities_: `(n)`, of each column in the learned distribution.
        classes_: Of a classification: the classes; of several targets a list of those of each; or numbers of labels.
        task_: What the network does.
        module_: The network, on the CPU. Its inputs are standardised and masked.
        n_steps_: Steps made.
        history_: Arrays `step`, `loss`, the mean since the step before, and `subset_size`.

    Raises:
        TypeError, ValueError: On `fit`, for arguments of a wrong kind or out of range; the message names them.
        FloatingPointError: On `fit`, if the training diverges.

    References:
        Ahmed, Zeng, Niepert and Van den Broeck (2023), https://arxiv.org/abs/2210.01941, and Wijk, Vinuesa and Azizpour
        (2024), https://arxiv.org/abs/2407.16058, for the gradients.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).standard_normal((500, 10))
        >>> y = X[:, 3] * X[:, 7]
        >>> selector = NeuralSubsetSelector(2, steps=300, device="cpu", random_state=0)
        >>> selector.fit(X, y).get_support(indices=True)
        array([3, 7])
    """

    def __init__(
        self,
        n_features_to_select: int,
        *,
        task: str | None = None,
        module: nn.Module | Callable[[int, int], nn.Module] | None = None,
        hidden_layer_sizes: Sequence[int] = (256, 256),
        gradient_estimator: Estimator | None = None,
        num_samples: int = 2,
        steps: int = 3000,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        logits_learning_rate: float = 0.1,
        feature_groups: Sequence[Sequence[str | int]] | None = None,
        always_include: Sequence[str | int] | None = None,
        exclude: Sequence[str | int] | None = None,
        device: str | torch.device | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.n_features_to_select, self.task = n_features_to_select, task
        self.module, self.hidden_layer_sizes = module, hidden_layer_sizes
        self.gradient_estimator, self.num_samples, self.steps = gradient_estimator, num_samples, steps
        self.batch_size, self.learning_rate, self.logits_learning_rate = batch_size, learning_rate, logits_learning_rate
        self.feature_groups, self.always_include, self.exclude = feature_groups, always_include, exclude
        self.device, self.random_state, self.verbose, self.callbacks = device, random_state, verbose, callbacks
        self.warm_start, self.checkpoint = warm_start, checkpoint

    @default_modes()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "NeuralSubsetSelector":
        """Find the columns, and train the network.

        Arguments:
            X: Data `(N, n)`, an array, DataFrame or, unless it is to be reconstructed, sparse matrix; finite numbers.
            y: Targets `(N)` or `(N, m)`; a reconstruction takes none.
            sample_weight: `(N)`, how much each row counts.
        """
        callbacks, device = listed_callbacks(self.callbacks), device_of(self.device)
        saved = None if self.checkpoint is None else load(self.checkpoint)
        # A file of something else, which may have no seed, is refused by its name below.
        seed = int(saved.state.get("seed", 0)) if saved and self.random_state is None else seed_of(self.random_state)
        recipe = Recipe(
            self.steps, self.batch_size, self.learning_rate, self.logits_learning_rate, self.gradient_estimator,
            self.num_samples, self.module is None, seed,
        )  # fmt: skip
        data, target, weights = self._check_data(X, y, sample_weight)
        space = self._space(data)
        scaling = Scaling.of(data, weights)
        task = task_of(self.task, target)
        if task == "reconstruction" and hasattr(data, "tocsr"):
            raise TypeError("X: expected dense data for a reconstruction, as what it predicts is, got sparse data")
        goal = Data(scaling, is_constant(data)) if task == "reconstruction" else target_of(task, target, weights)
        with seeded(recipe.seed, device):
            network, logits = self._start(space, goal)
            training = Training(recipe, space, network, logits, goal, data, weights, scaling, device)
            identity: dict[str, str] = {}
            if self.checkpoint is not None:
                settings = self.get_params(deep=False) | {"random_state": recipe.seed}
                settings = {name: value for name, value in settings.items() if name not in _NO_IDENTITY}
                # The module that comes first by default may as well have been given for the whole training.
                settings["gradient_estimator"] = "default" if self.gradient_estimator is None else "given"
                identity = training.joint.identity(**settings, X=data, y=target, sample_weight=weights)
                if saved is not None:
                    saved.check(identity)
                    training.load_state_dict(saved.state["training"])
            self._run(training, callbacks, identity)
        self.support_ = training.support()
        self.n_features_ = int(self.support_.sum())
        self.inclusion_probabilities_ = space.to_columns(training.inclusion())
        self.task_, self.module_, self.n_steps_ = task, network.cpu().eval(), training.joint.steps
        self.history_ = {name: np.array(values) for name, values in training.history.items()}
        self._target: Any = goal
        self._scaling, self._logits = scaling, training.logits.cpu()
        self._names = getattr(self, "feature_names_in_", None)
        self._size, self._group_index, self._selecting = space.size, space.group_index(), training.selecting
        # What is left of the training would only make pickles larger.
        goal.encoded = None
        self.module_.zero_grad()
        return self

    def co_inclusion(self, *, max_columns: int = 30) -> CoInclusion:
        """Probabilities of each two columns to be in a subset together, exact under the learned distribution.

        It has a logit for each column, or group, and none for pairs: the columns of a group are always together, and
        any others no more often than if they were independent. Two that compete for the same place have
        probabilities of about 1/2 each, and are seldom together where the other places are taken for sure.

        Arguments:
            max_columns: Columns in the result at most, the likeliest; those that are in no subset are left out.

        Raises:
            TypeError, ValueError: `max_columns` is no integer, or less than 1.
            sklearn.exceptions.NotFittedError: There has been no fit.
        """
        check_is_fitted(self)
        check_integer("max_columns", max_columns, 1)
        columns = likeliest(self.inclusion_probabilities_, self.support_, max_columns)
        columns = columns[self.inclusion_probabilities_[columns] > 0]
        joint = joint_probabilities(self._logits.double(), self._size, self._group_index, columns)
        return CoInclusion(columns, check_feature_names_in(self)[columns], joint, None)

    def _first_panel(self, plotting: ModuleType) -> Callable[[Any], None] | None:
        # A training that is interrupted may have told of no loss yet.
        return partial(plotting.losses, self.history_, self._selecting) if len(self.history_["step"]) else None

    def _check_features(self, data: Any, *, reset: bool) -> Any:
        return validate_data(self, data, reset=reset, dtype=[np.float64, np.float32], accept_sparse="csr")

    def _check_data(self, data: Any, target: Any, weights: Any) -> tuple[Any, Any, NDArray[np.float64]]:
        """Data, target and weights of the rows that count."""
        self._check_labels(data)
        data = self._check_features(data, reset=True)
        if target is None and self.__sklearn_tags__().target_tags.required:
            raise ValueError(f"y: a {self.task} requires y to be passed, but the target y is None")
        if self.task == "reconstruction":
            target = None
        if target is not None:
            target = check_target(target, data)
        weights = check_sample_weight(weights, data, dtype=np.float64)
        counting = weights > 0
        if (weights < 0).any() or not counting.any():
            raise ValueError(f"sample_weight: expected no negative numbers, and one above 0, got {weights}")
        if not counting.all():
            rows = np.flatnonzero(counting)
            data, weights = take_rows(data, rows), weights[rows]
            target = None if target is None else target[rows]
        return data, target, weights

    def _space(self, data: Any) -> SubsetSpace:
        units, wanted = self._feature_groups(data), self.n_features_to_select
        if not is_integer(wanted):
            raise TypeError(f"n_features_to_select: expected an integer, got {wanted!r}")
        units.check_sizes([int(wanted)], wanted)
        return units.space(int(wanted))

    def _start(self, space: SubsetSpace, target: Target) -> tuple[nn.Module, Tensor]:
        """The network and the logits at first."""
        if self.warm_start and hasattr(self, "module_"):
            free = len(self._logits)
            last, now = (np.where(index < free, index, -1) for index in (self._group_index, space.group_index()))
            names = getattr(self, "feature_names_in_", None)
            others = self._names is not None and names is not None and not np.array_equal(self._names, names)
            if free != len(space.free) or others or not np.array_equal(last, now):
                raise ValueError(
                    f"warm_start: expected data with the {free} columns or groups to choose from of the last fit, got "
                    f"{len(space.free)}, or others"
                )
            network, logits, argument = deepcopy(self.module_), self._logits, "warm_start"
        else:
            network = new_network(self.module, self.hidden_layer_sizes, space.num_columns, target.num_outputs)
            logits, argument = torch.zeros(len(space.free)), "module"
        check_outputs(network, space.num_columns, target.num_outputs, argument)
        return network, logits

    def _run(self, training: Training, callbacks: list[Callable[[Any], Any]], identity: dict[str, str]) -> None:
        """Train until a callback or an interrupt ends it."""
        try:
            for progress in training.run():
                if self.checkpoint is not None:
                    save(self.checkpoint, {"training": training.state_dict(), "seed": training.recipe.seed}, identity)
                if self.verbose > 0:
                    print(
                        f"[NeuralSubsetSelector] step {progress.step} of {progress.steps}: subsets of "
                        f"{progress.subset_size}, loss {progress.loss:.4g}"
                    )
                # A callback may draw random numbers for itself.
                with fork_rng([training.device] if training.device.type == "cuda" else []):
                    ended = notify(callbacks, progress)
                if ended:
                    break
        except KeyboardInterrupt:
            if not training.joint.steps:
                raise
            warnings.warn("interrupted: the selector keeps the columns that are likeliest at present", stacklevel=3)

    @property
    def classes_(self) -> Any:
        """Classes of a classification."""
        return self._target.classes

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes, values, or all columns, `(N)`, `(N, m)` or `(N, n)`, for data `(N, n)` with all columns."""
        outputs = self._outputs(X)
        predictions: NDArray[Any] = self._target.predict(outputs)
        return predictions

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes `(N, C)` or labels `(N, m)`; of several targets a list, one for each."""
        outputs = self._outputs(X)
        return self._target.predict_proba(outputs)

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Log-odds of the second of two classes `(N)` or of labels `(N, m)`; else unnormalised logarithms `(N, C)`."""
        outputs = self._outputs(X)
        return self._target.decision_function(outputs)

    @default_modes()
    @torch.no_grad()
    def _outputs(self, data: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        data = self._check_features(data, reset=False)
        mask = torch.from_numpy(self.support_)
        outputs = [
            self.module_(torch.where(mask, clipped(torch.from_numpy(self._scaling.apply(data[chunk]))), 0.0))
            for chunk in gen_batches(data.shape[0], _CHUNK)
        ]
        result: NDArray[np.float32] = torch.cat(outputs).numpy()
        return result

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy (of several targets or labels, all of them right), or R²; in a reconstruction variance-weighted.

        Arguments:
            X: Data `(N, n)` with all columns.
            y: Targets; a reconstruction takes none.
            sample_weight: `(N)`.
        """
        found = self.predict(X)
        if self.task_ == "classification":
            if found.ndim > 1:
                if np.shape(y) != found.shape:
                    raise ValueError(f"y: expected shape {found.shape}, got {np.shape(y)}")
                return float(np.average((np.asarray(y) == found).all(1), weights=sample_weight))
            return float(accuracy_score(y, found, sample_weight=sample_weight))
        if self.task_ == "regression":
            return float(r2_score(y, found, sample_weight=sample_weight))
        data = self._check_features(X, reset=False)
        return float(r2_score(data, found, sample_weight=sample_weight, multioutput="variance_weighted"))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        task = getattr(self, "task_", self.task)
        tags.estimator_type = {"classification": "classifier", "regression": "regressor"}.get(str(task))
        # Few columns may predict little, however good the network; and a task that is not known may be each.
        if task in ("classification", None):
            tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=True, multi_label=True)
        if task in ("regression", None):
            tags.regressor_tags = RegressorTags(poor_score=True)
        tags.target_tags.required = self.task in ("classification", "regression")
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = self.task != "reconstruction"
        return tags
