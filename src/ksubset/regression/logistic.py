"""Logistic regression on subsets of columns, many at once."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Logistic"]

# Numbers in the columns of subsets that are fitted at once.
_CHUNK = 2**22
_ITERATIONS, _HALVINGS = 100, 40
# The Newton decrement, as part of the objective, at which a fit is done.
_DONE = 1e-12
# Penalty on intercepts, as part of the sum of the weights; else they have no unique values where there is one for each
# class, or a class is not there.
_INTERCEPT = 1e-10
# Added to second derivatives, as part of the largest of them, for each coefficient: what rounding takes away from them.
_JITTER = 1e-15


@dataclass(frozen=True)
class Logistic:
    """The sum of log losses of a softmax of linear functions, and half of `alpha` times their squared coefficients.

    Arguments:
        x: Columns, scaled, `(N, n)`, float64.
        fixed: Those of them that are in every fit besides, `(N, a)`.
        targets: For two classes whether it is the second one, `(N, 1)`; for m > 2 one for the class of the row,
            `(N, m)`.
        weights: Of the rows, `(N)`.
        intercept: Whether there is one.
        alpha: Above 0, so that all fits are finite.
    """

    x: Tensor
    fixed: Tensor
    targets: Tensor
    weights: Tensor
    intercept: bool
    alpha: float

    @property
    def num_columns(self) -> int:
        """The number of columns, n."""
        return self.x.shape[1]

    def fit(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        """Minimise on each subset, by Newton's method with halved steps.

        Shapes:
            `(B, k)` -> objectives `(B)` and coefficients `(B, q, m)`: of the intercept, if there is one, of the fixed
            columns and those of the subset.
        """
        size = self.intercept + self.fixed.shape[1] + subsets.shape[1]
        step = max(1, _CHUNK // (len(self.x) * max(1, size)))
        parts = [self._fitted(part) for part in subsets.split(step)]
        return torch.cat([value for value, _ in parts]), torch.cat([theta for _, theta in parts])

    def losses(self, subset: Tensor, theta: Tensor) -> float:
        """The sum of log losses alone, for a subset `(k)` with coefficients `(q, m)`."""
        return float(self._loss(self._design(subset[None]), theta[None])[0])

    def additions(self, subset: Tensor, theta: Tensor) -> Tensor:
        """What one Newton step makes of each further column, `(n)`: the change of the objective by the score test."""
        _, _, left, remaining = self._left(subset, theta)
        gained = (left * torch.linalg.solve(remaining, left[:, :, None]).squeeze(2)).sum(1)
        changes: Tensor = gained / -2
        return changes.scatter(0, subset, math.inf)

    def swaps(self, subset: Tensor, theta: Tensor) -> Tensor:
        """The change of the quadratic model at the minimum by each swap of a member for another column, `(k, n)`.

        It is the formula of :meth:`ksubset.regression.quadratic.Quadratic.swaps` with a block for each pair of columns.
        """
        inverse, products, left, remaining = self._left(subset, theta)
        size, num_classes = len(subset), theta.shape[1]
        first = len(theta) - size
        blocks = inverse.reshape(len(theta), num_classes, len(theta), num_classes)
        weights = (inverse @ products).reshape(len(theta), num_classes, self.num_columns, num_classes)
        tables = []
        for place in range(first, len(theta)):
            own = torch.linalg.inv(blocks[place, :, place])
            removed = own @ theta[place]
            weight = weights[place].transpose(0, 1)
            gradient = left + (weight.mT @ removed)
            curvature = remaining + weight.mT @ own @ weight
            gained = (gradient * torch.linalg.solve(curvature, gradient[:, :, None]).squeeze(2)).sum(1)
            tables.append((theta[place] @ removed - gained) / 2)
        return torch.stack(tables).scatter(1, subset.expand(size, -1), math.inf)

    def _design(self, subsets: Tensor) -> Tensor:
        columns = self.x[:, subsets].permute(1, 0, 2)
        parts = [self.fixed.expand(len(subsets), -1, -1), columns]
        if self.intercept:
            parts.insert(0, torch.ones(len(subsets), len(self.x), 1, dtype=torch.float64))
        return torch.cat(parts, 2)

    def _penalty(self, size: int) -> Tensor:
        penalty = torch.full((size,), self.alpha, dtype=torch.float64)
        penalty[: int(self.intercept)] = _INTERCEPT * self.weights.sum()
        return penalty

    def _loss(self, design: Tensor, theta: Tensor) -> Tensor:
        logits = design @ theta
        if theta.shape[2] == 1:
            margins = (2 * self.targets - 1) * logits
        else:
            own = self.targets.bool()
            others = logits.masked_fill(own, -math.inf).logsumexp(2, keepdim=True)
            margins = logits.masked_fill(~own, 0).sum(2, keepdim=True) - others
        # Of the margin all digits are kept; of a difference of logits and their logsumexp those of large logits.
        losses: Tensor = (-torch.nn.functional.logsigmoid(margins.squeeze(2)) * self.weights).sum(1)
        return losses

    def _objective(self, design: Tensor, theta: Tensor) -> Tensor:
        penalty = self._penalty(theta.shape[1])
        return self._loss(design, theta) + (penalty[:, None] * theta.square()).sum((1, 2)) / 2

    def _probabilities(self, design: Tensor, theta: Tensor) -> Tensor:
        logits = design @ theta
        return logits.sigmoid() if theta.shape[2] == 1 else logits.softmax(2)

    def _fitted(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        design = self._design(subsets)
        theta = torch.zeros(len(subsets), design.shape[2], self.targets.shape[1], dtype=torch.float64)
        value = self._objective(design, theta)
        active = torch.arange(len(subsets) if theta.numel() else 0)
        for _ in range(_ITERATIONS):
            if not len(active):
                break
            part, old = design[active], theta[active]
            step, decrement = self._newton(part, old)
            length = torch.ones(len(active), 1, 1, dtype=torch.float64)
            for _ in range(_HALVINGS):
                found = self._objective(part, old - length * step)
                risen = found > value[active] - 1e-4 * length[:, 0, 0] * decrement
                if not risen.any():
                    break
                length[risen] /= 2
            # Where no step helps any more, rounding is all that is left.
            better = found < value[active]
            theta[active[better]] = (old - length * step)[better]
            value[active[better]] = found[better]
            active = active[better & (decrement > _DONE * found)]
        return value, theta

    def _newton(self, design: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The step `(B, q, m)`, and the decrement `(B)`."""
        probabilities = self._probabilities(design, theta)
        penalty = self._penalty(theta.shape[1])[:, None]
        gradient = design.mT @ ((probabilities - self.targets) * self.weights[:, None]) + penalty * theta
        flat = gradient.flatten(1)
        curvature = self._curvature(design, probabilities)
        step = torch.cholesky_solve(flat[:, :, None], torch.linalg.cholesky(curvature)).squeeze(2)
        return step.reshape(theta.shape), (flat * step).sum(1)

    def _curvature(self, design: Tensor, probabilities: Tensor) -> Tensor:
        """Second derivatives of the objective, `(B, q m, q m)`, positive definite even where the penalty is rounded."""
        curvature = self._hessian(design, design, probabilities)
        curvature = curvature + self._penalty(design.shape[2]).repeat_interleave(probabilities.shape[2]).diag()
        largest = curvature.diagonal(dim1=1, dim2=2).amax(1)[:, None, None]
        return curvature + _JITTER * len(curvature[0]) * largest * torch.eye(len(curvature[0]), dtype=torch.float64)

    def _hessian(self, first: Tensor, second: Tensor, probabilities: Tensor) -> Tensor:
        """Second derivatives of the losses by coefficients of two sets of columns, `(B, q m, r m)`."""
        num_classes = probabilities.shape[2]
        rows = []
        for one in range(num_classes):
            own = probabilities[..., one] * self.weights
            blocks = [
                first.mT @ (second * (own * (float(one == other) - probabilities[..., other]))[..., None])
                for other in range(num_classes)
            ]
            rows.append(torch.stack(blocks, 3))
        return torch.stack(rows, 2).flatten(3).flatten(1, 2)

    def _left(self, subset: Tensor, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Inverse Hessian of a fit, products with it of all columns, and their gradients and what is left of theirs."""
        design = self._design(subset[None])
        probabilities = self._probabilities(design, theta[None])
        num_classes = theta.shape[1]
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(self._curvature(design, probabilities)[0]))
        products = self._hessian(design, self.x[None], probabilities)[0]
        left = self.x.T @ ((self.targets - probabilities[0]) * self.weights[:, None])
        curvature = torch.empty(self.num_columns, num_classes, num_classes, dtype=torch.float64)
        squares = self.x.square()
        for one in range(num_classes):
            own = probabilities[0, :, one] * self.weights
            for other in range(num_classes):
                curvature[:, one, other] = (own * (float(one == other) - probabilities[0, :, other])) @ squares
        explained = products.reshape(len(theta) * num_classes, self.num_columns, num_classes).transpose(0, 1)
        remaining = curvature + self.alpha * torch.eye(num_classes, dtype=torch.float64)
        return inverse, products, left, remaining - explained.mT @ inverse @ explained
