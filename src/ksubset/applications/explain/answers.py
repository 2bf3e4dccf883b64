"""What is preserved: the answers of a model, whatever it is, or labels."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ksubset.selection.arguments import are_classes, check_target

__all__ = ["OUTPUTS", "Model", "distance", "targets_of", "units_of"]

OUTPUTS = ("probabilities", "logits", "values")

_CHUNK = 4096


class Model:
    """A torch module or a function, frozen, with answers of one kind: log-probabilities `(N, C)` or values `(N, m)`.

    Arguments:
        model: A module, of which a copy is kept in 'eval' mode, or a function; both take rows of X.
        output: What it returns: one of `OUTPUTS`.
        device: Where a module is.
        table: What rows of an array are made before a function gets them.

    Raises:
        TypeError: The model is neither.
        ValueError: The output is unknown.
    """

    def __init__(self, model: Any, output: str, device: torch.device, table: Callable[[NDArray[Any]], Any]) -> None:
        if output not in OUTPUTS:
            raise ValueError(f"output: expected one of {', '.join(OUTPUTS)}, got {output!r}")
        self.output, self._device = output, device
        self._module: nn.Module | None = None
        self._function, self._table = model, table
        if isinstance(model, nn.Module):
            self._module = deepcopy(model).to(device).eval().requires_grad_(requires_grad=False)
            floats = [p.dtype for p in [*self._module.parameters(), *self._module.buffers()] if p.is_floating_point()]
            self._dtype = floats[0] if floats else torch.float32
        elif not callable(model):
            expected = "a torch module, a function, such as predict_proba of a classifier, or None"
            raise TypeError(f"model: expected {expected}, got {model!r}")
        self._width: int | None = None

    @property
    def differentiable(self) -> bool:
        """Whether a gradient flows through it."""
        return self._module is not None

    def __call__(self, rows: Tensor) -> Tensor:
        """Rows `(N, *shape)` -> answers `(N, C)`.

        Raises:
            ValueError: What it returns has another shape, is not finite, or is of another kind than `output`.
        """
        rows = rows.clone()  # a model may write into its argument
        if self._module is not None:
            given = self._module(rows.to(self._dtype) if rows.is_floating_point() else rows)
            if not isinstance(given, Tensor):
                raise ValueError(f"model: expected a module that returns a tensor, got {type(given).__name__}")
        else:
            found = np.asarray(self._function(self._table(rows.cpu().numpy())), dtype=np.float64)
            given = torch.from_numpy(found).to(rows.device)
        if given.ndim == 1 and self.output == "values":
            given = given.unsqueeze(-1)
        if given.ndim != 2 or len(given) != len(rows) or given.shape[1] < 1 + (self.output != "values"):
            classes = '(N, C) with two classes or more, or output="values",'
            expected = "(N,) or (N, m)" if self.output == "values" else classes
            raise ValueError(f"model: expected outputs {expected} for N = {len(rows)} rows, got {tuple(given.shape)}")
        if self._width not in (None, given.shape[1]):
            raise ValueError(f"model: expected {self._width} outputs of each row, as before, got {given.shape[1]}")
        self._width = given.shape[1]
        self._check_values(given.detach())
        if self.output == "values":
            return given.double()
        given = given.float()
        if self.output == "probabilities":
            # A forest says 0 where a tree or two would have said more.
            return given.clamp_min(1e-6).log()
        return given.log_softmax(-1)

    def _check_values(self, given: Tensor) -> None:
        if not given.isfinite().all():
            raise ValueError("model: expected finite outputs, got NaN or infinity")
        are_probabilities = bool((given >= -1e-6).all() and ((given.sum(-1) - 1).abs() < 1e-3).all())
        if (self.output == "probabilities") != are_probabilities and self.output != "values":
            got = "ones that are and do" if are_probabilities else "others"
            wanted = (
                "that are 0 or more and sum to 1" if self.output == "probabilities" else "that are no probabilities"
            )
            raise ValueError(f"model: expected outputs {wanted}, as output is {self.output!r}, got {got}")

    @torch.no_grad()
    def answers(self, rows: Tensor) -> Tensor:
        """Probabilities or values, `(N, C)`, in chunks and without a gradient, on the CPU."""
        found = torch.cat([self(chunk.to(self._device)).cpu() for chunk in rows.split(_CHUNK)])
        return found if self.output == "values" else found.exp()


def targets_of(y: Any, rows: NDArray[Any]) -> tuple[Tensor, NDArray[Any] | None]:
    """Labels as probabilities 0 and 1, `(N, C)`, with their classes, or numbers `(N, m)` with None.

    Raises:
        ValueError: They are not as many as the rows, not finite, or of a single class.
    """
    target = check_target(y, rows)
    if not are_classes(target, "as floats they are numbers"):
        return torch.from_numpy(target.reshape(len(target), -1).astype(np.float64)), None
    if target.ndim != 1:
        raise ValueError(f"y: expected labels (N) or numbers (N, m), got shape {target.shape}")
    classes, place = np.unique(target, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y: expected two classes or more, got {classes.tolist()}")
    return torch.from_numpy(np.eye(len(classes), dtype=np.float32)[place]), classes


def units_of(values: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations `(C)` of values `(N, C)`, in double precision; 1 for constants."""
    exact = values.double()
    deviations = exact.std(0, correction=0)
    return exact.mean(0), torch.where(exact.amax(0) > exact.amin(0), deviations, 1.0)


def distance(answers: Tensor, wanted: Tensor, scale: Tensor | None) -> Tensor:
    """Cross-entropy, or the squared difference of values in units of their variance.

    Arguments:
        answers: Log-probabilities or values, `(S, B, C)`.
        wanted: Probabilities or values, `(B, C)`.
        scale: Standard deviations of values, `(C)`; None for probabilities.

    Shapes:
        -> `(S, B)`.
    """
    if scale is not None:
        # Double precision up to here: values may be large, and differ by little.
        return ((answers - wanted) / scale).float().square().mean(-1)
    return -(wanted * answers).sum(-1)
