"""The k neighbours of a query as a random subset of the candidates, and what is lost by them."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from ksubset.distributions import KSubset, SubsetDistribution
from ksubset.estimators import Estimator
from ksubset.numerics.checks import check_size

__all__ = ["LOSSES", "AtMean", "NeighborSelector", "class_shares", "log_share", "vote_error", "wrong_share"]

# The share of right labels is no less than this in its logarithm: no sample of the neighbours is infinitely bad.
_LEAST_SHARE = 1e-3


class NeighborSelector(nn.Module):
    r"""The distribution of the k neighbours of each query, from the distances in a learned space.

    .. math:: w_j = -\lVert e(x) - e(c_j) \rVert^2 / \tau

    are the logits of the candidates :math:`c_j`, so that near ones are likely, and the k nearest the likeliest subset.
    With k = 1 it is the softmax over neighbours of Goldberger et al. (2004).

    Arguments:
        k: Neighbours.
        embedding: Maps rows `(N, ...)` to points `(N, d)`.
        temperature: The :math:`\tau`, above 0.
        validate_args: As of `KSubset`.

    Raises:
        ValueError: `temperature` is not above 0; when used, points have another shape than said, or there are fewer
            candidates than k, without the query itself.

    Shapes:
        queries `(B, ...)`, candidates `(M, ...)` -> `KSubset` with logits `(B, M)`.

    References:
        Xie and Ermon (2019), Reparameterizable Subset Sampling via Continuous Relaxations,
        https://arxiv.org/abs/1901.10517, for stochastic k-nearest neighbours.
        Goldberger, Roweis, Hinton and Salakhutdinov (2004), Neighbourhood Components Analysis.

    Example:
        >>> selector = NeighborSelector(2, nn.Identity())
        >>> candidates = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
        >>> selector(torch.tensor([[0.5], [5.5]]), candidates).mode
        tensor([[1., 1., 0., 0.],
                [0., 0., 1., 1.]])
    """

    def __init__(
        self, k: int, embedding: nn.Module, temperature: float = 1.0, validate_args: bool | None = None
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.k, self.embedding, self.temperature = k, embedding, temperature
        self.validate_args = validate_args

    def forward(self, queries: Tensor, candidates: Tensor | None = None) -> KSubset:
        """The neighbours among the candidates; without these among the other queries, a query never being its own."""
        points = self._points(queries)
        others = points if candidates is None else self._points(candidates)
        dtype = others.dtype
        # Distances are differences of squares here, which lose digits: the fewest about the origin.
        points, others = points.double(), others.double()
        center = others.detach().mean(0)
        points, others = points - center, others - center
        squares = points.square().sum(-1, keepdim=True) + others.square().sum(-1) - 2 * points @ others.mT
        logits = (-squares / self.temperature).to(dtype)
        available = len(others)
        if candidates is None:
            own = torch.eye(len(points), dtype=torch.bool, device=points.device)
            logits = logits.masked_fill(own, -torch.inf)
            available -= 1
        if self.k > available:
            raise ValueError(f"expected {self.k} candidates or more besides the query, got {available}")
        check_size(logits, self.k)
        return KSubset(self.k, logits, validate_args=self.validate_args)

    def _points(self, rows: Tensor) -> Tensor:
        points = self.embedding(rows)
        if not isinstance(points, Tensor) or points.ndim != 2 or len(points) != len(rows):
            found = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
            raise ValueError(f"embedding: expected points of shape ({len(rows)}, d) for {len(rows)} rows, got {found}")
        return points

    def extra_repr(self) -> str:
        return f"k={self.k}, temperature={self.temperature}"


class AtMean(Estimator):
    r"""The loss at the inclusion probabilities instead of samples.

    For a loss that is linear in the subset, such as `wrong_share`, this is its expectation, and the gradient is exact,
    without noise. For others it is another objective: `log_share` becomes :math:`-\log E[\text{share}]`, of
    which :math:`-E[\log \text{share}]` is an upper bound. One sample is as good as many.

    Example:
        >>> from ksubset import expectation
        >>> dist = KSubset(2, torch.tensor([0.5, -0.3, 1.2, 0.0]))
        >>> expectation(lambda z: z[..., 0], dist, AtMean())  # the inclusion probability
        tensor(0.5613)
    """

    needs_gradient = reparameterized = True

    def sample(self, dist: SubsetDistribution, num_samples: int, generator: Generator | None = None) -> Tensor:
        mean = dist.mean
        return mean.expand(num_samples, *mean.shape)


def class_shares(subsets: Tensor, members: Tensor, k: int) -> Tensor:
    """Shares of the classes among neighbours.

    Arguments:
        subsets: Neighbours among the candidates, or their inclusion probabilities.
        members: The class of each candidate, one-hot.
        k: Neighbours.

    Raises:
        RuntimeError: `subsets` and `members` have other numbers of candidates.

    Shapes:
        subsets `(*S, B, M)`, members `(M, C)` -> `(*S, B, C)`.

    Example:
        >>> members = nn.functional.one_hot(torch.tensor([0, 0, 1, 2])).float()
        >>> class_shares(torch.tensor([[1.0, 0.0, 1.0, 0.0]]), members, k=2)
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    return subsets @ members / k


def wrong_share(shares: Tensor, labels: Tensor) -> Tensor:
    """Share of the neighbours that have another label than the query; linear in the subset.

    Arguments:
        shares: Of the classes among the neighbours, as of `class_shares`.
        labels: The class of each query, int64 in 0..C-1.

    Raises:
        RuntimeError: A label is outside of 0..C-1.
        ValueError: There is another number of them.

    Shapes:
        shares `(S, B, C)`, labels `(B)` -> `(S, B)`.

    Example:
        >>> shares = torch.tensor([[[0.6, 0.4, 0.0], [0.4, 0.4, 0.2]]])  # of three classes, for two queries
        >>> wrong_share(shares, torch.tensor([0, 2]))
        tensor([[0.4000, 0.8000]])
    """
    return 1 - _right_share(shares, labels)


def log_share(shares: Tensor, labels: Tensor) -> Tensor:
    """Minus the logarithm of the share of the neighbours with the query's label, which counts as 1/1000 if it is less.

    Arguments:
        shares: Of the classes among the neighbours, as of `class_shares`.
        labels: The class of each query, int64 in 0..C-1.

    Raises:
        RuntimeError: A label is outside of 0..C-1.
        ValueError: There is another number of them.

    Shapes:
        shares `(S, B, C)`, labels `(B)` -> `(S, B)`.

    Example:
        >>> shares = torch.tensor([[[0.6, 0.4, 0.0], [0.4, 0.4, 0.2]]])  # of three classes, for two queries
        >>> log_share(shares, torch.tensor([0, 2]))
        tensor([[0.5102, 1.6054]])
    """
    return -((1 - _LEAST_SHARE) * _right_share(shares, labels) + _LEAST_SHARE).log()


def vote_error(shares: Tensor, labels: Tensor) -> Tensor:
    """Whether the majority of the neighbours has another label than the query; it has no gradient.

    Of classes with equally many neighbours each counts as the majority in part.

    Arguments:
        shares: Of the classes among the neighbours, as of `class_shares`.
        labels: The class of each query, int64 in 0..C-1.

    Raises:
        RuntimeError: A label is outside of 0..C-1.
        ValueError: There is another number of them.

    Shapes:
        shares `(S, B, C)`, labels `(B)` -> `(S, B)`.

    Example:
        >>> shares = torch.tensor([[[0.6, 0.4, 0.0], [0.4, 0.4, 0.2]]])  # of three classes, for two queries
        >>> vote_error(shares, torch.tensor([0, 0]))  # the second vote is a tie
        tensor([[0.0000, 0.5000]])
    """
    # Shares of k neighbours are apart by 1 / k, rounding errors by far less.
    winners = (shares.detach() >= shares.detach().amax(-1, keepdim=True) - 1e-5).to(shares.dtype)
    return 1 - _right_share(winners / winners.sum(-1, keepdim=True), labels)


def _right_share(shares: Tensor, labels: Tensor) -> Tensor:
    if labels.shape != shares.shape[-2:-1]:
        raise ValueError(f"labels must be one for each of {shares.shape[-2]} queries, got shape {tuple(labels.shape)}")
    return shares.gather(-1, labels.expand(shares.shape[:-1])[..., None]).squeeze(-1)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "share": wrong_share,
    "log": log_share,
    "vote": vote_error,
}
