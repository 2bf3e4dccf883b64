"""Least squares on subsets of columns, many at once, from second moments, or from columns where these do not do."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Quadratic"]

# Added to a diagonal of ones for each column of a subset, and for some more, so that dependent columns have a Cholesky
# factor; it is as much as rounding takes away.
_JITTER, _MORE = 1e-15, 10
# Errors of second moments, where columns have those of double precision, in units of these.
_MOMENTS = 10.0
# Part of the smallest eigenvalue that errors of second moments may be, for first-order bounds on what they do.
_SMALL = 0.1
# Numbers in a table of swaps that are made at once.
_CHUNK = 2**23


@dataclass(frozen=True)
class Quadratic:
    """The sum of squares of `target - columns b`, minimised over b `(n)` on a subset.

    Arguments:
        columns: `(N, n)`, float64, of norm 1, or 0 where they are no use.
        target: `(N)`, of norm 1, or 0.
        column_precision: By how much columns may be wrong for rounding, as a part of their norm, `(n)`.
        target_precision: By how much the target may be.
    """

    columns: Tensor
    target: Tensor
    column_precision: Tensor
    target_precision: float

    @property
    def num_columns(self) -> int:
        """The number of columns, n."""
        return self.columns.shape[1]

    @cached_property
    def _precision(self) -> float:
        """Of whatever is the least precise."""
        return max(self.target_precision, float(self.column_precision.max()) if self.num_columns else 0.0)

    @cached_property
    def gram(self) -> Tensor:
        """Second moments of the columns, `(n, n)`; one of zeros counts as one that nothing else depends on."""
        gram = self.columns.T @ self.columns
        gram.diagonal().fill_(1)
        return gram

    @cached_property
    def product(self) -> Tensor:
        """Second moments of the columns with the target, `(n)`."""
        return self.columns.T @ self.target

    @cached_property
    def total(self) -> float:
        """The square of the target."""
        return float(self.target @ self.target)

    @cached_property
    def _short(self) -> Tensor:
        """Columns and target as the last column, turned, so that there are no more rows than columns."""
        whole = torch.cat([self.columns, self.target[:, None]], 1)
        return whole if len(whole) <= whole.shape[1] else torch.linalg.qr(whole, mode="r")[1]

    def refitted(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        """The minimum on each subset from the columns themselves, and how wrong it may be for rounding.

        Of dependent columns the shortest solution counts. Where rounding alone decides whether they are dependent,
        nothing is known of the minimum.

        Shapes:
            `(B, k)` -> `(B)` and `(B)`.
        """
        data = self._short
        step = max(1, _CHUNK // (len(data) * (subsets.shape[1] + 1)))
        tolerance = torch.finfo(torch.float64).eps * max(self.columns.shape)
        values, errors = [], []
        for part in subsets.split(step):
            columns = data[:, part].permute(1, 0, 2)
            target, precision = data[:, -1:].expand(len(part), -1, -1), self.column_precision[part]
            left, sizes, right = torch.linalg.svd(columns, full_matrices=False)
            distinct = sizes > tolerance * sizes[:, :1]
            kept = distinct & (sizes > (right * precision[:, None]).norm(dim=2))
            inverse = torch.where(kept, 1 / sizes, 0.0)
            solution = right.mT @ (inverse[:, :, None] * (left.mT @ target))
            value = (target - columns @ solution).square().sum((1, 2))
            # By so much the residual changes where target and columns do by their precision.
            change = self.target_precision * self.target.norm() + (precision * solution[:, :, 0]).norm(dim=1)
            error = 2 * change * value.sqrt() + change.square()
            values.append(value)
            errors.append(error.masked_fill((distinct & ~kept).any(1), math.inf))
        return torch.cat(values), torch.cat(errors)

    def error(self, inverse: Tensor, size: int) -> Tensor:
        """By how much the minimum on subsets of a size may be wrong, infinite where second moments do not tell it.

        Arguments:
            inverse: Bound on the inverse of the smallest eigenvalue of the subset's Gram matrix, of any shape.
            size: k.
        """
        # The squared coefficients are at most this, as the target is of norm 1, and their penalty is the jitter.
        moments = _MOMENTS * self._precision + self._jitter(size)
        return (moments * (1 + inverse)).masked_fill(moments * inverse > _SMALL, math.inf)

    def rss(self, subsets: Tensor) -> Tensor:
        """The minimum on each subset, which is the residual sum of squares.

        Shapes:
            `(B, k)` -> `(B)`.
        """
        if not subsets.shape[1]:
            return torch.full((len(subsets),), self.total, dtype=torch.float64)
        step = max(1, _CHUNK // subsets.shape[1] ** 2)
        return torch.cat([self._factor(part)[2] for part in subsets.split(step)])

    def rss_with_error(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        """The minimum on each subset, and by how much it may be wrong.

        Shapes:
            `(B, k)`, k from 1 -> `(B)` and `(B)`.
        """
        parts = [self._rss_with_error(part) for part in subsets.split(max(1, _CHUNK // subsets.shape[1] ** 2))]
        return torch.cat([value for value, _ in parts]), torch.cat([error for _, error in parts])

    def additions_with_error(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        """As `additions`, and by how much these may be wrong at most, both `(B, n)`."""
        parts = [self._additions_with_error(part) for part in subsets.split(self._rows(subsets))]
        return torch.cat([value for value, _ in parts]), torch.cat([error for _, error in parts])

    def additions(self, subsets: Tensor) -> Tensor:
        """The minimum with each further column; infinite where it is in the subset already.

        Shapes:
            `(B, k)` -> `(B, n)`.
        """
        return self.additions_with_error(subsets)[0]

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

    def _jitter(self, size: int) -> float:
        return _JITTER * (size + _MORE)

    def _factor(self, subsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gram = self.gram[subsets[:, :, None], subsets[:, None, :]]
        size = subsets.shape[1]
        factor = torch.linalg.cholesky(gram + self._jitter(size) * torch.eye(size, dtype=torch.float64))
        solved = torch.linalg.solve_triangular(factor, self.product[subsets][:, :, None], upper=False)
        return factor, solved, (self.total - solved.square().sum((1, 2))).clamp_min(0)

    def _left(self, subsets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Factor, solved product, residual, rows of the Gram matrix solved with the factor, and what they leave."""
        factor, solved, value = self._factor(subsets)
        rows = torch.linalg.solve_triangular(factor, self.gram[subsets], upper=False)
        left = self.product - (rows.mT @ solved).squeeze(2)
        remaining = (1 - rows.square().sum(1)).clamp_min(self._jitter(subsets.shape[1]))
        return factor, solved, value, rows, left, remaining

    def _rss_with_error(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        factor, _, value = self._factor(subsets)
        return value, self.error(_trace_of_inverse(factor), subsets.shape[1])

    def _additions_with_error(self, subsets: Tensor) -> tuple[Tensor, Tensor]:
        factor, _, value, _, left, remaining = self._left(subsets)
        value = (value[:, None] - left.square() / remaining).scatter(1, subsets, math.inf)
        # A further column adds to the trace of the inverse its squared coefficients by the others and 1, divided by
        # what remains of it; the former are at most the trace.
        trace = _trace_of_inverse(factor)[:, None]
        return value, self.error(trace + (1 + trace) / remaining, subsets.shape[1] + 1)

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


def _trace_of_inverse(factor: Tensor) -> Tensor:
    """Of matrices with these Cholesky factors: `(B, k, k)` -> `(B)`."""
    identity = torch.eye(factor.shape[1], dtype=factor.dtype).expand_as(factor)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
    return inverse.square().sum((1, 2))
