"""Least squares on subsets of columns, many at once, from second moments alone."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Quadratic"]

# Added to a diagonal of ones, so that subsets with dependent columns have a Cholesky factor; what it does to a residual
# is below the rounding of the moments themselves.
_JITTER = 1e-12
# Numbers in a table of swaps that are made at once.
_CHUNK = 2**23


@dataclass(frozen=True)
class Quadratic:
    """The quadratic function `total - 2 <product, b> + <b, gram b>`, minimised over b `(n)` on a subset.

    Arguments:
        gram: Second moments of the columns, `(n, n)`, float64, its diagonal 1, or 0 of a column that is no use.
        product: Those of the columns with the target, `(n)`.
        total: That of the target.
    """

    gram: Tensor
    product: Tensor
    total: float

    @property
    def num_columns(self) -> int:
        """The number of columns, n."""
        return len(self.product)

    def rss(self, subsets: Tensor) -> Tensor:
        """The minimum on each subset, which is the residual sum of squares.

        Shapes:
            `(B, k)` -> `(B)`.
        """
        if not subsets.shape[1]:
            return torch.full((len(subsets),), self.total, dtype=torch.float64)
        step = max(1, _CHUNK // subsets.shape[1] ** 2)
        return torch.cat([self._factor(part)[2] for part in subsets.split(step)])

    def additions(self, subsets: Tensor) -> Tensor:
        """The minimum with each further column; infinite where it is in the subset already.

        Shapes:
            `(B, k)` -> `(B, n)`.
        """
        return torch.cat([self._additions(part) for part in subsets.split(self._rows(subsets))])

    def swaps(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        r"""The minimum on each subset, and after each swap of one member for one other column.

        With `M` the inverse of the subset's Gram matrix, `b` its coefficients, `r` what is left of `product`, `h` of
        the diagonal, and `A = M gram[S]`, a swap of member p for column j changes the residual sum of
        squares by

        .. math:: \frac{b_p^2}{M_{pp}} - \frac{(r_j + A_{pj} b_p / M_{pp})^2}{h_j + A_{pj}^2 / M_{pp}}.

        Shapes:
            `(B, k)` -> `(B)` and `(B, k, n)`, infinite where the column is in the subset already.
        """
        parts = [self._swaps(part) for part in subsets.split(self._rows(subsets))]
        return torch.cat([value for value, _ in parts]), torch.cat([table for _, table in parts])

    def _rows(self, subsets: Tensor) -> int:
        return max(1, _CHUNK // (max(1, subsets.shape[1]) * self.num_columns))

    def _factor(self, subsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gram = self.gram[subsets[:, :, None], subsets[:, None, :]]
        factor = torch.linalg.cholesky(gram + _JITTER * torch.eye(subsets.shape[1], dtype=torch.float64))
        solved = torch.linalg.solve_triangular(factor, self.product[subsets][:, :, None], upper=False)
        return factor, solved, (self.total - solved.square().sum((1, 2))).clamp_min(0)

    def _left(self, subsets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Factor, solved product, residual, rows of the Gram matrix solved with the factor, and what they leave."""
        factor, solved, value = self._factor(subsets)
        rows = torch.linalg.solve_triangular(factor, self.gram[subsets], upper=False)
        left = self.product - (rows.mT @ solved).squeeze(2)
        remaining = (self.gram.diagonal() - rows.square().sum(1)).clamp_min(_JITTER)
        return factor, solved, value, rows, left, remaining

    def _additions(self, subsets: Tensor) -> Tensor:
        _, _, value, _, left, remaining = self._left(subsets)
        return (value[:, None] - left.square() / remaining).scatter(1, subsets, math.inf)

    def _swaps(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        factor, solved, value, rows, left, remaining = self._left(subsets)
        upper = factor.mT
        identity = torch.eye(subsets.shape[1], dtype=torch.float64).expand_as(factor)
        variance = torch.linalg.solve_triangular(upper, identity, upper=True).square().sum(2)[:, :, None]
        coefficients = torch.linalg.solve_triangular(upper, solved, upper=True)
        weights = torch.linalg.solve_triangular(upper, rows, upper=True)
        removed = coefficients / variance
        gained = (left[:, None] + weights * removed).square()
        table = value[:, None, None] + coefficients * removed
        table = table - gained / (remaining[:, None] + weights.square() / variance)
        members = subsets[:, None, :].expand(-1, subsets.shape[1], -1)
        return value, table.scatter(2, members, math.inf)
