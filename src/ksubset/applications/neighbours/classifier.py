"""The scikit-learn classifier whose k nearest neighbours are those of a learned embedding."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import Tags, gen_batches
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from ksubset._support.modes import default_modes
from ksubset.applications.neighbours.training import Recipe, Training
from ksubset.estimators import Estimator
from ksubset.search.arguments import check_integer
from ksubset.selection.arguments import seed_of
from ksubset.selection.neural.batches import Scaling
from ksubset.selection.neural.networks import device_of, new_network
from ksubset.training import load, save, seeded

__all__ = ["SubsetNeighborsClassifier"]

_CHUNK = 1024
# In standard deviations: a column that is hardly ever not 0 has huge values.
_CLIP = 5.0
# Arguments that may differ where a fit goes on from its checkpoint: what is told changes no step, a file may have been
# moved, and so may a training; and modules count as what was made of them.
_NO_IDENTITY = {"verbose", "checkpoint", "device", "embedding", "gradient_estimator"}


class SubsetNeighborsClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Classify by the k nearest rows, after an embedding was trained for that.

    In a step of the training each row of a batch is a query, whose neighbours are a random k-subset of the other rows:
    near ones are likely. What is lost depends on the share of the neighbours that have its label, and the
    gradient goes through the distribution of the subset to the embedding. A row is never its own neighbour.

    Predictions are those of scikit-learn's `KNeighborsClassifier` on the embedded training rows: the likeliest subset
    of all rows, in place of random ones of a batch. They are searched exactly.

    Arguments:
        n_neighbors: The k, in training and prediction; fewer than there are rows.
        embedding: The network: a module that maps `(N, n)` rows to `(N, d)` points, which is copied, and gets rows as
            they are, in float32; or a function that makes one of (n, embedding_size). None is a perceptron with ReLU,
            on columns that are standardised, and cut at 5 standard deviations.
        hidden_layer_sizes: Widths of the hidden layers of the perceptron; without any it is a linear map.
        embedding_size: Dimension of the points, unless `embedding` is a module.
        loss: What is made of the share of right labels: "log" is minus its logarithm, "share" the share of wrong
            labels, "vote" whether the majority is wrong, which has no gradient, so needs a `gradient_estimator` that
            does without.
        gradient_estimator: Of `ksubset.estimators`, of the gradient for the distances. None takes the loss at the
            inclusion probabilities in place of sampled neighbours: the exact expectation if the loss is "share".
        num_samples: Subsets of each query in a step, where an estimator samples.
        temperature: Squared distances are divided by it.
        steps: Steps of the optimizer, on `batch_size` rows each: the length of the training.
        batch_size: Rows in a step, or all rows if they are fewer. A query finds k neighbours with its label only where
            the batch has more of its class: some three times `n_neighbors` times the number of classes is enough.
        learning_rate: It falls along a cosine.
        weight_decay: Of the embedding, as in AdamW.
        device: Where to train; None is the GPU if CUDA has one, else the CPU.
        random_state: Seed; with it a fit on the CPU always has the same result, but not beside other threads that draw
            torch's random numbers.
        verbose: Above 0, prints some fifty lines.
        checkpoint: Path of a file to which the training is written as often. Another fit with the same data and
            settings goes on from there, with the result of one that was not ended; a file of others is an error.

    Attributes:
        classes_: The classes.
        embedding_: The trained module, on the CPU.
        neighbors_: The `KNeighborsClassifier` on the embedded training rows.
        n_features_in_, feature_names_in_: Of the data.
        history_: Arrays `step` and `loss`, the mean since the step before.

    Raises:
        TypeError, ValueError: On `fit`, for arguments of a wrong kind or out of range; the message names them.
        FloatingPointError: On `fit`, if the training diverges.

    References:
        Xie and Ermon (2019), https://arxiv.org/abs/1901.10517; Grover, Wang, Zweig and Ermon (2019),
        https://arxiv.org/abs/1903.08850, for deep stochastic neighbours.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).standard_normal((400, 10))
        >>> y = X[:, 3] * X[:, 7] > 0
        >>> model = SubsetNeighborsClassifier(steps=200, device="cpu", random_state=0)
        >>> bool(model.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.8)
        True
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        embedding: nn.Module | Callable[[int, int], nn.Module] | None = None,
        hidden_layer_sizes: Sequence[int] = (256,),
        embedding_size: int = 32,
        loss: str = "log",
        gradient_estimator: Estimator | None = None,
        num_samples: int = 8,
        temperature: float = 0.1,
        steps: int = 1000,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        device: str | torch.device | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.n_neighbors, self.embedding, self.hidden_layer_sizes = n_neighbors, embedding, hidden_layer_sizes
        self.embedding_size, self.loss, self.gradient_estimator = embedding_size, loss, gradient_estimator
        self.num_samples, self.temperature, self.steps, self.batch_size = num_samples, temperature, steps, batch_size
        self.learning_rate, self.weight_decay, self.device = learning_rate, weight_decay, device
        self.random_state, self.verbose, self.checkpoint = random_state, verbose, checkpoint

    @default_modes()
    def fit(self, X: Any, y: Any) -> "SubsetNeighborsClassifier":
        """Train the embedding, and keep all rows.

        Arguments:
            X: Data `(N, n)`, finite numbers.
            y: Classes `(N)`, two or more.
        """
        device = device_of(self.device)
        saved = None if self.checkpoint is None else load(self.checkpoint)
        # A file of something else, which may have no seed, is refused by its name below.
        seed = int(saved.state.get("seed", 0)) if saved and self.random_state is None else seed_of(self.random_state)
        recipe = Recipe(
            self.n_neighbors, self.loss, self.gradient_estimator, self.num_samples, self.temperature, self.steps,
            self.batch_size, self.learning_rate, self.weight_decay, seed,
        )  # fmt: skip
        data, target = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(target)
        self.classes_, labels = np.unique(target, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected two classes or more, got one class, {self.classes_.tolist()[0]!r}")
        self._scaling = Scaling.of(data, np.ones(len(data))) if self.embedding is None else None
        rows = self._rows(data)
        with seeded(recipe.seed, device):
            size = check_integer("embedding_size", self.embedding_size, 1)
            embedding = new_network(self.embedding, self.hidden_layer_sizes, data.shape[1], size)
            _check_points(embedding, data.shape[1])
            training = Training(recipe, embedding, rows, labels, device)
            identity: dict[str, str] = {}
            if self.checkpoint is not None:
                settings = self.get_params(deep=False) | {"random_state": recipe.seed}
                settings = {name: value for name, value in settings.items() if name not in _NO_IDENTITY}
                identity = training.joint.identity(**settings, X=data, y=target)
                if saved is not None:
                    saved.check(identity)
                    training.load_state_dict(saved.state["training"])
            for step, loss in training.run():
                if self.checkpoint is not None:
                    save(self.checkpoint, {"training": training.state_dict(), "seed": recipe.seed}, identity)
                if self.verbose > 0:
                    print(f"[SubsetNeighborsClassifier] step {step} of {recipe.steps}: loss {loss:.4g}")
        self.embedding_ = embedding.cpu().eval()
        self.embedding_.zero_grad()
        self.history_ = {name: np.array(values) for name, values in training.history.items()}
        self.neighbors_ = KNeighborsClassifier(recipe.n_neighbors).fit(self._points(rows), target)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The points of rows `(N, n)`, `(N, d)`."""
        check_is_fitted(self)
        return self._points(self._rows(validate_data(self, X, reset=False, dtype=[np.float64, np.float32])))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of most of the k nearest training rows, `(N)`; of several the first in `classes_`."""
        points = self.transform(X)
        predictions: NDArray[Any] = self.neighbors_.predict(points)
        return predictions

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The share of each class in the k nearest training rows, `(N, C)`."""
        points = self.transform(X)
        shares: NDArray[np.float64] = self.neighbors_.predict_proba(points)
        return shares

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The nearest training rows, the nearest first.

        Arguments:
            X: Data `(N, n)`. None are the training rows themselves, none of which is its own neighbour.
            n_neighbors: How many, M; by default as many as in `fit`.

        Returns:
            Distances of the points, and numbers of the rows, `(N, M)`.
        """
        check_is_fitted(self)
        points = None if X is None else self.transform(X)
        distances, rows = self.neighbors_.kneighbors(points, n_neighbors)
        return distances, rows

    @property
    def _n_features_out(self) -> int:
        """Read by scikit-learn for the names of the columns of `transform`."""
        return int(self.neighbors_.n_features_in_)

    def _rows(self, data: NDArray[Any]) -> NDArray[np.float32]:
        """Data as the embedding takes it, `(N, n)`."""
        rows = np.empty(data.shape, np.float32)
        for chunk in gen_batches(len(data), _CHUNK):
            rows[chunk] = data[chunk] if self._scaling is None else self._scaling.apply(data[chunk]).clip(-_CLIP, _CLIP)
        return rows

    @default_modes()
    @torch.no_grad()
    def _points(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        points = [self.embedding_(torch.from_numpy(rows[chunk])) for chunk in gen_batches(len(rows), _CHUNK)]
        found: NDArray[np.float32] = torch.cat(points).numpy()
        return found

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


@torch.no_grad()
def _check_points(embedding: nn.Module, num_inputs: int) -> None:
    """Check the shape of the points of two rows, or raise a ValueError; this also gives shapes to lazy layers."""
    expected = f"embedding: expected a module that maps rows (N, {num_inputs}) to points (N, d)"
    try:
        points = embedding.cpu().eval()(torch.zeros(2, num_inputs))
    except RuntimeError as error:  # torch's word for shapes and types that do not fit
        raise ValueError(f"{expected}, got an error ({error})") from error
    found = tuple(points.shape) if isinstance(points, torch.Tensor) else type(points).__name__
    if not (isinstance(points, torch.Tensor) and points.ndim == 2 and len(points) == 2 and points.shape[1] > 0):
        raise ValueError(f"{expected}, got {found} for N = 2")
