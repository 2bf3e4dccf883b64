"""The explainer: a selector that is trained on many rows, and then explains others at once."""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ksubset._support.modes import default_modes
from ksubset.applications.explain import networks
from ksubset.applications.explain.answers import Model, targets_of, units_of
from ksubset.applications.explain.inputs import Inputs, check_rows, table_like
from ksubset.applications.explain.training import Answer, Examples, Recipe, RowHead, Training
from ksubset.estimators import Estimator, LeaveOneOut
from ksubset.search.arguments import check_integer, check_positive
from ksubset.selection.arguments import check_labels, seed_of
from ksubset.selection.neural.networks import device_of
from ksubset.training import load, save, seeded

__all__ = ["Explanation", "SubsetExplainer"]

_CHUNK = 4096
# Arguments that may differ where a fit goes on from its checkpoint; modules count as what was made of them.
_NO_IDENTITY = {"verbose", "checkpoint", "device", "model", "surrogate", "selector", "gradient_estimator"}


@dataclass(frozen=True)
class Explanation:
    """Which inputs of each row were chosen.

    Arguments:
        mask: The likeliest subset of items, `(N, items)`, boolean.
        inclusion: Inclusion probabilities of the items, `(N, items)`.
        columns: The mask as one of the columns of X, in its shape, `(N, ...)`, boolean.

    Example:
        >>> explainer = SubsetExplainer(lambda x: x[:, 1], 1, output="values", surrogate=False, steps=50, device="cpu")
        >>> rows = np.random.default_rng(0).standard_normal((500, 3)).astype(np.float32)
        >>> explainer.fit(rows).explain(rows[:4]).mask.argmax(1)
        array([1, 1, 1, 1])
    """

    mask: NDArray[np.bool_]
    inclusion: NDArray[np.float32]
    columns: NDArray[np.bool_]


class SubsetExplainer(BaseEstimator):  # type: ignore[misc]
    """Choose the k inputs of each example from which the answer of a model, or the label, can be told.

    A selector maps a row to a distribution over the subsets of k of its items: columns, groups of columns, or words. It
    is trained on many rows, so that the answer on a sampled subset is what the model says of the row, by cross-entropy
    or, of values, squared error in units of their variance; it then explains any row without the model.

    The answer on a subset comes from a surrogate, a network that was trained before to give the model's answers from
    random subsets (the variational approximation of Chen et al., trained as by Jethani et al.), and costs one call of
    the model for each row of `fit`; or from the model itself, on rows with a baseline in place of what is masked.

    Arguments:
        model: What is explained: a torch module, of which a copy is kept, or any function of arrays; both map rows of
            X to `(N, C)`, or values `(N)`. A method of what was fitted to a table gets tables where X is one (pandas,
            polars). None explains the labels that `fit` is given.
        k: Items to choose of each row, those with fewer keep all.
        output: What the model returns: "probabilities", "logits" or "values".
        surrogate: True trains a surrogate, a perceptron, convolutions or an embedding; or a module of the masked rows
            and the mask, which is copied. Numbers are standardised, so that a masked one is 0. False asks the model
            itself, in each step `num_samples * batch_size` times.
        selector: A module that maps rows, standardised unless they are tokens, to a logit of each item, `(N, items)`,
            which is copied; None is a perceptron, convolutions or an embedding.
        gradient_estimator: Of `ksubset.estimators`, or a function that gives one for the progress in [0, 1]; None is
            `LeaveOneOut()`, the one that needs no gradient of the model. Others need a surrogate, or a torch module.
        feature_groups: Sequences of columns, by index or name, that stand or fall together, such as `patches` or
            one-hot blocks; a column in none is an item of its own. Pixels are numbered in row-major order.
        padding: The token that fills up short rows, where X are tokens; never chosen, it stands for a masked word.
        baseline: What the model sees in place of masked numbers: a number or an array like a row; None is the mean.
        num_samples, batch_size: Subsets of each row, and rows, in a step.
        steps: Steps of the selector's training.
        learning_rate: Of the selector; falls along a cosine, as the surrogate's does.
        regularization: Weight, at first, of the squared logits; it falls to a hundredth.
        surrogate_steps, surrogate_learning_rate: Of the surrogate's training; with 0 steps a module is taken as it is.
        device: Where to train; None is the GPU if CUDA has one, else the CPU.
        random_state: Seed; with it a fit on the CPU always has the same result, but not beside other threads that draw
            torch's random numbers.
        verbose: Above 0, prints some twenty lines of each training.
        checkpoint: Path of a file to which the training is written as often. Another fit with the same data and
            settings goes on from there, with the result of one that was not ended; a file of others is an error.

    Attributes:
        selector_: The trained `SubsetHead`, on the CPU.
        surrogate_: The surrogate, on the CPU; None if the model itself was asked.
        classes_: Of labels; None of a model.
        history_: Arrays `step`, `loss` of the selector's training.

    Raises:
        TypeError, ValueError: On `fit`, for arguments of a wrong kind or out of range; the message names them.
        FloatingPointError: On `fit`, if a training diverges.

    References:
        Chen, Song, Wainwright and Jordan (2018), Learning to Explain, https://arxiv.org/abs/1802.07814.
        Yoon, Jordon and van der Schaar (2019), INVASE, https://openreview.net/forum?id=BJg_roAcK7.
        Jethani et al. (2021), Have We Learned to Explain?, https://arxiv.org/abs/2103.01890.

    Example:
        >>> rows = np.random.default_rng(0).standard_normal((2000, 6))
        >>> model = lambda x: np.where(x[:, 0] > 0, x[:, 1], x[:, 2])  # the first column says which other one counts
        >>> short = {"surrogate_steps": 500, "steps": 300, "device": "cpu", "random_state": 0}
        >>> explainer = SubsetExplainer(model, 2, output="values", **short)
        >>> explanation = explainer.fit(rows).explain([[2.0, 1, 1, 1, 1, 1], [-2.0, 1, 1, 1, 1, 1]])
        >>> explanation.mask.nonzero()[1]
        array([0, 1, 0, 2])
    """

    def __init__(
        self,
        model: nn.Module | Callable[[NDArray[Any]], Any] | None,
        k: int,
        *,
        output: str = "probabilities",
        surrogate: bool | nn.Module = True,
        selector: nn.Module | None = None,
        gradient_estimator: Estimator | Callable[[float], Estimator] | None = None,
        feature_groups: Sequence[Sequence[str | int]] | None = None,
        padding: int | None = None,
        baseline: Any = None,
        num_samples: int = 4,
        steps: int = 800,
        batch_size: int = 250,
        learning_rate: float = 1e-2,
        regularization: float = 1e-2,
        surrogate_steps: int = 2000,
        surrogate_learning_rate: float = 5e-3,
        device: str | torch.device | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.model, self.k, self.output, self.surrogate, self.selector = model, k, output, surrogate, selector
        self.gradient_estimator, self.feature_groups = gradient_estimator, feature_groups
        self.padding, self.baseline, self.num_samples, self.steps = padding, baseline, num_samples, steps
        self.batch_size, self.learning_rate, self.regularization = batch_size, learning_rate, regularization
        self.surrogate_steps, self.surrogate_learning_rate = surrogate_steps, surrogate_learning_rate
        self.device, self.random_state, self.verbose, self.checkpoint = device, random_state, verbose, checkpoint

    @default_modes()
    def fit(self, X: Any, y: Any = None) -> "SubsetExplainer":
        """Train the surrogate, if there is to be one, and the selector.

        Arguments:
            X: Numbers `(N, n)`, images `(N, H, W)` or `(N, C, H, W)`, or, with a padding, integer tokens `(N, L)`.
            y: Labels `(N)`, or floats `(N)` or `(N, m)` with fractions or of over 20 values; None with a model.
        """
        device = device_of(self.device)
        saved = None if self.checkpoint is None else load(self.checkpoint)
        # A file of something else, which may have no seed, is refused by its name below.
        seed = int(saved.state.get("seed", 0)) if saved and self.random_state is None else seed_of(self.random_state)
        recipe, estimator = self._recipe(seed), self._estimator()
        rows = check_rows(X, self.padding)
        inputs = self._new_inputs(X, rows)
        model, wanted, classes = self._wanted(X, rows, y, estimator)
        values = self.output == "values" if model is not None else classes is None
        units = units_of(wanted.to(device)) if values else None
        examples = Examples(
            torch.from_numpy(rows).to(device), inputs.seen(rows).to(device),
            torch.from_numpy(inputs.available(rows)).to(device), wanted.to(device),
        )  # fmt: skip
        with seeded(seed, device):
            head, surrogate = self._networks(inputs, examples, units, device)
            answer = Answer(inputs, surrogate or model, values=values)
            training = Training(head, surrogate, answer, estimator, examples, units and units[1], recipe)
            identity: dict[str, str] = {}
            if self.checkpoint is not None:
                settings = {
                    name: value for name, value in self.get_params(deep=False).items() if name not in _NO_IDENTITY
                }
                identity = training.identity(**settings | {"random_state": seed}, X=rows, answers=wanted)
                if saved is not None:
                    saved.check(identity)
                    training.load_state_dict(saved.state["training"])
            for report in training.run():
                if self.checkpoint is not None:
                    save(self.checkpoint, {"training": training.state_dict(), "seed": seed}, identity)
                if self.verbose > 0:
                    print(f"[SubsetExplainer] {report}")
        self.selector_ = head.cpu().eval()
        self.surrogate_ = None if surrogate is None else surrogate.cpu()
        self.classes_ = classes
        self.history_ = {name: np.array(values) for name, values in training.history.items()}
        self._inputs, self._answer = inputs, answer
        head.zero_grad()
        return self

    def explain(self, X: Any, k: Any = None) -> Explanation:
        """Choose the inputs of rows.

        Arguments:
            X: Rows like those of `fit`.
            k: Items to choose, a number for all rows or one for each, `(N)`; None is the `k` of `fit`.

        Returns:
            An `Explanation`. Where more than enough items were asked for, those that matter have inclusion
            probabilities of nearly 1, and the others share the rest: `inclusion > 0.5` has a size of its own for each.

        Raises:
            TypeError, ValueError: X or k does not fit.
            sklearn.exceptions.NotFittedError: There has been no fit.
        """
        check_is_fitted(self)
        rows = self._inputs.check(X)
        seen, available = self._inputs.seen(rows), torch.from_numpy(self._inputs.available(rows))
        sizes = torch.from_numpy(_sizes(self.selector_.k if k is None else k, len(rows), self._inputs.num_items))
        masks, probabilities = [], []
        with default_modes(), torch.no_grad():
            for part, items, size in zip(*(t.split(_CHUNK) for t in (seen, available, sizes)), strict=True):
                logits = self.selector_.score(part).double()
                dist = RowHead.distribution(logits, items, size, validate_args=False)
                masks.append(dist.mode.bool())
                probabilities.append(dist.mean.float())
        mask = torch.cat(masks)
        return Explanation(mask.numpy(), torch.cat(probabilities).numpy(), self._inputs.columns(mask).numpy())

    def fill(self, X: Any, mask: Any) -> NDArray[Any]:
        """Rows with the baseline, or padding, in place of the items that are not chosen, for the model.

        Arguments:
            X: Rows like those of `fit`.
            mask: `(N, items)`, boolean.

        Raises:
            ValueError: X or the mask does not fit.
        """
        rows, chosen = self._checked(X, mask)
        result: NDArray[Any] = self._inputs.filled(torch.from_numpy(rows), chosen[None]).numpy()
        return result

    def predict(self, X: Any, mask: Any) -> NDArray[Any]:
        """The surrogate's answers from the chosen items alone: probabilities `(N, C)`, float32, or values `(N, m)`.

        Arguments:
            X: Rows like those of `fit`.
            mask: `(N, items)`, boolean.

        Raises:
            ValueError: X or the mask does not fit; or there is no surrogate.
        """
        rows, chosen = self._checked(X, mask)
        if self.surrogate_ is None:
            raise ValueError("predict: expected a surrogate; without one, the model answers on what `fill` returns")
        with default_modes(), torch.no_grad():
            parts = zip(self._inputs.seen(rows).split(_CHUNK), chosen.split(_CHUNK), strict=True)
            found = torch.cat([self.surrogate_(*self._inputs.shown(part, some[None])) for part, some in parts])
            answers: NDArray[Any] = (found if self._answer.values else found.softmax(-1)).numpy()
        return answers

    def _checked(self, X: Any, mask: Any) -> tuple[NDArray[Any], Tensor]:
        check_is_fitted(self)
        rows, chosen = self._inputs.check(X), np.asarray(mask)
        if chosen.shape != (len(rows), self._inputs.num_items) or chosen.dtype != np.bool_:
            raise ValueError(
                f"mask: expected booleans {(len(rows), self._inputs.num_items)}, got {chosen.dtype} {chosen.shape}"
            )
        return rows, torch.from_numpy(chosen).float()

    def _recipe(self, seed: int) -> Recipe:
        if isinstance(self.regularization, bool) or not isinstance(
            self.regularization, int | float | np.integer | np.floating
        ):
            raise TypeError(f"regularization: expected a number, got {self.regularization!r}")
        if not 0 <= self.regularization < math.inf:
            raise ValueError(f"regularization: expected a finite number of 0 or more, got {self.regularization}")
        return Recipe(
            steps=check_integer("steps", self.steps, 1),
            batch_size=check_integer("batch_size", self.batch_size, 1),
            num_samples=check_integer("num_samples", self.num_samples, 1),
            learning_rate=check_positive("learning_rate", self.learning_rate),
            regularization=float(self.regularization),
            surrogate_steps=check_integer("surrogate_steps", self.surrogate_steps, 0),
            surrogate_learning_rate=check_positive("surrogate_learning_rate", self.surrogate_learning_rate),
            seed=seed,
        )

    def _estimator(self) -> Estimator | Callable[[float], Estimator]:
        # A copy, because some remember what they have seen.
        given = LeaveOneOut() if self.gradient_estimator is None else deepcopy(self.gradient_estimator)
        first = given if isinstance(given, Estimator) else given(0.0) if callable(given) else given
        if not isinstance(first, Estimator):
            raise TypeError(
                f"gradient_estimator: expected an estimator of ksubset.estimators, a function that gives one, or None, "
                f"got {self.gradient_estimator!r}"
            )
        if self.num_samples < first.min_samples:
            raise ValueError(
                f"num_samples: expected {first.min_samples} or more, as {type(first).__name__} needs, "
                f"got {self.num_samples}"
            )
        return given

    def _new_inputs(self, data: Any, rows: NDArray[Any]) -> Inputs:
        check_labels(data, feature_groups=self.feature_groups)
        columns = getattr(data, "columns", None)
        names = None if columns is None else [str(name) for name in columns]
        inputs = Inputs(rows, self.padding, self.feature_groups, names, self.baseline)
        if check_integer("k", self.k, 1) > inputs.num_items:
            raise ValueError(f"k: expected at most {inputs.num_items}, the number of items, got {self.k}")
        return inputs

    def _wanted(
        self, X: Any, rows: NDArray[Any], y: Any, estimator: Estimator | Callable[[float], Estimator]
    ) -> tuple[Model | None, Tensor, NDArray[Any] | None]:
        """The model, the answers to be preserved, and the classes of labels."""
        if self.model is None:
            if y is None:
                raise ValueError("y: expected labels, as there is no model to be explained, got None")
            if self.surrogate is False:
                raise ValueError(
                    "surrogate: expected True or a module, as there is no model that could answer, got False"
                )
            return None, *targets_of(y, rows)
        if y is not None:
            raise ValueError("y: expected None, as the answers of the model are explained; labels need model=None")
        model = Model(self.model, self.output, device_of(self.device), table_like(X, self.model))
        given = estimator if isinstance(estimator, Estimator) else estimator(0.0)
        if self.surrogate is False and given.needs_gradient and not model.differentiable:
            raise ValueError(
                f"gradient_estimator: expected one that needs no gradient of a function, such as LeaveOneOut(), or a "
                f"surrogate, got {given!r}"
            )
        return model, model.answers(torch.from_numpy(rows)), None

    def _networks(
        self, inputs: Inputs, examples: Examples, units: tuple[Tensor, Tensor] | None, device: torch.device
    ) -> tuple[RowHead, nn.Module | None]:
        """The head and the surrogate, their outputs checked, which also gives shapes to lazy layers."""
        channels, num_outputs = examples.seen.shape[1], examples.wanted.shape[1]
        surrogate: nn.Module | None = None
        if isinstance(self.surrogate, nn.Module):
            surrogate = deepcopy(self.surrogate)
        elif not isinstance(self.surrogate, bool):
            raise TypeError(f"surrogate: expected True, False or a torch module, got {self.surrogate!r}")
        if inputs.padding is not None:
            score: nn.Module = networks.TokenScorer(inputs.num_tokens, inputs.padding)
            default: nn.Module = networks.TokenSurrogate(inputs.num_tokens, num_outputs)
        elif len(inputs.shape) > 1:
            score, default = (
                networks.ImageScorer(channels, inputs.num_items),
                networks.ImageSurrogate(channels, num_outputs),
            )
        else:
            score, default = networks.Scorer(channels, inputs.num_items), networks.Surrogate(channels, num_outputs)
        if self.selector is not None:
            if not isinstance(self.selector, nn.Module):
                raise TypeError(f"selector: expected a torch module or None, got {self.selector!r}")
            score = deepcopy(self.selector)
        head = RowHead(self.k, score, validate_args=False).to(device)
        if self.surrogate is True:
            check_integer("surrogate_steps", self.surrogate_steps, 1)
            surrogate = default if units is None else networks.Rescaled(default, *units)
        few = examples[torch.arange(min(2, len(examples)))]
        with torch.no_grad():
            _check("selector", head.score, (few.seen,), (len(few), inputs.num_items))
            if surrogate is not None:
                masked = inputs.shown(few.seen, few.available[None].float())
                _check("surrogate", surrogate.to(device), masked, (len(few), num_outputs))
        return head, surrogate


def _check(argument: str, module: nn.Module, inputs: Sequence[Tensor], expected: tuple[int, int]) -> None:
    # In 'eval' mode, as statistics of a batch are no part of a check; and each part as it was afterwards.
    modes = [(part, part.training) for part in module.modules()]
    try:
        found = module.eval()(*inputs)
    except (RuntimeError, TypeError, ValueError) as error:  # how torch says that shapes or types do not fit
        raise ValueError(f"{argument}: expected a module with outputs {expected}, got an error ({error})") from error
    for part, training in modes:
        part.training = training
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if shape != expected:
        raise ValueError(f"{argument}: expected a module with outputs {expected} for {expected[0]} rows, got {shape}")


def _sizes(k: Any, num_rows: int, num_items: int) -> NDArray[np.int64]:
    """A size for each row, checked."""
    sizes = np.asarray(k)
    if sizes.dtype.kind not in "iu":
        raise TypeError(f"k: expected integers, got {k!r}")
    if sizes.shape not in ((), (num_rows,)):
        raise ValueError(f"k: expected one integer, or one for each of {num_rows} rows, got shape {sizes.shape}")
    if sizes.min() < 0 or sizes.max() > num_items:
        raise ValueError(f"k: expected 0 to {num_items}, the number of items, got {sizes.min()} to {sizes.max()}")
    return np.broadcast_to(sizes, (num_rows,)).astype(np.int64)
