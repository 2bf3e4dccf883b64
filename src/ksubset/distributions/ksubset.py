"""The k-subset distribution as a `torch.distributions.Distribution`."""

import math
from itertools import combinations
from typing import Any

import torch
from torch import Generator, Size, Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.distributions.utils import lazy_property

from ksubset.numerics.checks import check_feasible, check_size
from ksubset.numerics.joint import covariance
from ksubset.numerics.marginals import logits_from_marginals
from ksubset.numerics.quadrature import Moments, log_density, log_esp, moments
from ksubset.numerics.sampling import SamplingTable, sample_indices, sampling_table
from ksubset.numerics.topk import top_k

__all__ = ["KSubset", "k_hot"]

# Subsets that `enumerate_support` is willing to list.
_ENUMERABLE = 1_000_000


class k_hot(constraints.Constraint):  # noqa: N801 - torch names its constraints in lower case
    """Vectors of zeros and ones with exactly k ones."""

    is_discrete = True
    event_dim = 1

    def __init__(self, k: int | Tensor) -> None:
        self.k = k
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        binary = ((value == 0) | (value == 1)).all(-1)
        return binary & (value.sum(-1, dtype=torch.float64) == self.k)

    def __repr__(self) -> str:
        return f"k_hot(k={self.k})"


class KSubset(Distribution):
    r"""Distribution over the subsets of exactly k of n items.

    .. math:: \log p(z) = \langle w, z\rangle - \log e_k(\exp w), \qquad z \in \{0, 1\}^n,\ \sum_i z_i = k,

    with logits :math:`w` and the elementary symmetric polynomial :math:`e_k`: independent Bernoulli draws, conditioned
    on their sum (conditional Bernoulli, or conditional Poisson sampling). A constant added to the logits changes
    nothing, and the inclusion probabilities (`mean`) are NOT the Bernoulli parameters `probs`.

    As with other distributions, results are computed once and kept: build a new one after every change of a parameter.

    References:
        Wijk, Vinuesa and Azizpour (2024), Revisiting Score Function Estimators for k-Subset Sampling, section 2,
        https://arxiv.org/abs/2407.16058.
        Chen, Dempster and Liu (1994), https://doi.org/10.1093/biomet/81.3.457.

    Arguments:
        k: Subset size, an integer or an integer tensor that broadcasts over the batch.
        logits: Log-odds `(*B, n)`; -inf excludes an item, +inf includes it.
        probs: Instead of `logits`, the parameters `theta` in [0, 1] of the Bernoulli draws, `(*B, n)`. A parameter of
            exactly 0 or 1 fixes its item and gets no gradient.
        validate_args: Whether to check values (which waits for the device, and is left out inside of `torch.compile`);
            shapes and types are always checked.

    Raises:
        TypeError: k is no integer, or the parameters are no floating-point tensor.
        ValueError: k is out of range, shapes do not broadcast, or (under validation) a row has NaN, more than k items
            at +inf, or fewer than k above -inf.

    Example:
        >>> dist = KSubset(2, logits=torch.tensor([0.5, -0.3, 1.2, 0.0]))
        >>> dist.mean
        tensor([0.5613, 0.2975, 0.7571, 0.3841])
        >>> dist.log_prob(torch.tensor([1.0, 0.0, 1.0, 0.0])).exp()
        tensor(0.3683)
        >>> dist.sample((3,)).sum(-1)
        tensor([2., 2., 2.])
    """

    # Elementwise, because torch's vector constraints fail on empty batches; k, perhaps an int, is checked by hand.
    arg_constraints = {  # noqa: RUF012 - the name and the form are torch's
        "logits": constraints.real,
        "probs": constraints.unit_interval,
    }
    has_enumerate_support = True

    def __init__(
        self,
        k: int | Tensor,
        logits: Tensor | None = None,
        probs: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if logits is not None and probs is None:
            name, parameter = "logits", logits
        elif probs is not None and logits is None:
            name, parameter = "probs", probs
        else:
            given = "both" if probs is not None else "neither"
            raise ValueError(f"exactly one of logits and probs must be given, got {given}")
        check_size(parameter, k, name)
        self.k: int | Tensor
        batch_shape = parameter.shape[:-1]
        if isinstance(k, Tensor):
            batch_shape = torch.broadcast_shapes(k.shape, batch_shape)
            parameter, self.k = (
                parameter.expand(*batch_shape, -1),
                k.to(parameter.device, torch.int64).expand(batch_shape),
            )
        else:
            self.k = int(k)
        setattr(self, name, parameter)
        if torch.compiler.is_compiling():
            validate_args = False  # no value can be read there, and torch's own checks cannot be traced
        super().__init__(batch_shape, parameter.shape[-1:], validate_args=validate_args)
        if self._validate_args:
            check_feasible(self.logits, self.k, name)
        self._base = self._without_repeats(name)

    @property
    def _root(self) -> "KSubset":
        """The distribution that does the work, of which this one is an expansion."""
        return self if self._base is None else self._base

    def _without_repeats(self, name: str) -> "KSubset | None":
        """The distribution of these rows, less the dimensions along which `Tensor.expand` repeats them, if any."""
        parameter, k = getattr(self, name), self.k
        for dim, size in enumerate(self.batch_shape):
            if size > 1 and parameter.stride(dim) == 0 and (isinstance(k, int) or k.stride(dim) == 0):
                parameter = parameter.narrow(dim, 0, 1)
                k = k if isinstance(k, int) else k.narrow(dim, 0, 1)
        # None instead of itself: a cycle would keep tables and graphs until the garbage collector comes by.
        if parameter.shape[:-1] == self.batch_shape:
            return None
        return KSubset(k, **{name: parameter}, validate_args=False)

    @classmethod
    def from_marginals(cls, marginals: Tensor, tolerance: float = 1e-5, validate_args: bool | None = None) -> "KSubset":
        """The distribution with these inclusion probabilities: of all with them, the one of largest entropy.

        Arguments:
            marginals: Inclusion probabilities in [0, 1], whose sum is k; no gradient flows through them.
            tolerance: How far the sum may be from an integer.
            validate_args: As of the class.

        Raises:
            TypeError: `marginals` is no floating-point tensor.
            ValueError: A marginal is outside of [0, 1], or a sum is further from an integer than the tolerance.

        Shapes:
            marginals `(*B, n)`.
        """
        logits, k = logits_from_marginals(marginals, tolerance)
        return cls(k if k.ndim else int(k), logits, validate_args=validate_args)

    def __repr__(self) -> str:
        size = self.k if isinstance(self.k, int) else tuple(self.k.shape)
        # The parameter that was given is the first one that was set.
        name = next(name for name in self.__dict__ if name in self.arg_constraints)
        return f"KSubset(k: {size}, {name}: {tuple(getattr(self, name).shape)})"

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return k_hot(self.k)

    @lazy_property
    def logits(self) -> Tensor:
        inside = (self.probs > 0) & (self.probs < 1)
        # The unused branch must have a finite gradient, or masking it would give 0 * inf.
        theta = torch.where(inside, self.probs, 0.5)
        limit = torch.where(self.probs > 0, math.inf, -math.inf).to(theta.dtype)
        return torch.where(inside, theta.log() - torch.log1p(-theta), limit)

    @lazy_property
    def probs(self) -> Tensor:
        return self.logits.sigmoid()

    @property
    def param_shape(self) -> Size:
        return self._extended_shape()

    def expand(self, batch_shape: Any, _instance: "KSubset | None" = None) -> "KSubset":
        new: KSubset = self._get_checked_instance(KSubset, _instance)
        batch_shape = torch.Size(batch_shape)
        new.k = self.k.expand(batch_shape) if isinstance(self.k, Tensor) else self.k
        for name in {"logits", "probs"} & self.__dict__.keys():
            setattr(new, name, getattr(self, name).expand(*batch_shape, -1))
        new._base = self._root
        super(KSubset, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @lazy_property
    def _moments(self) -> Moments:
        return moments(self.logits, self.k)

    @lazy_property
    def _table(self) -> SamplingTable:
        return sampling_table(self.logits, self.k)

    def sample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        """Draw exact samples, k-hot vectors of the logits' dtype.

        Shapes:
            -> `(*sample_shape, *B, n)`.
        """
        indices = self.sample_indices(sample_shape, generator=generator)
        # From the indices, so that vmap knows of the samples' dimension too.
        chosen = indices.new_zeros((*indices.shape[:-1], *self.event_shape), dtype=self.logits.dtype)
        # Where k varies, unused places of -1 add nothing to the first item.
        return chosen.scatter_add_(-1, indices.clamp(min=0), (indices >= 0).to(chosen.dtype))

    def sample_indices(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        """Draw exact samples as the ascending indices of their k items, without building k-hot vectors.

        Where k varies by row, K is the largest, and shorter rows end in -1.

        Shapes:
            -> `(*sample_shape, *B, K)`, int64.
        """
        sample_shape = torch.Size(sample_shape)
        depth, inner = len(self.batch_shape), self._root.batch_shape
        base = (1,) * (depth - len(inner)) + tuple(inner)
        # Rows that `expand` repeats are further samples of one row.
        repeats = [size // max(1, row) if row != size else 1 for size, row in zip(self.batch_shape, base, strict=True)]
        drawn = sample_indices(self._root._table, math.prod(sample_shape) * math.prod(repeats), generator)
        drawn = drawn.reshape(*sample_shape, *repeats, *base, drawn.shape[-1])
        # Each repeated axis is interleaved with the axis of size 1 that it stands for.
        lead = len(sample_shape)
        pairs = [axis for i in range(depth) for axis in (lead + i, lead + depth + i)]
        drawn = drawn.permute(*range(lead), *pairs, -1)
        return drawn.reshape(*sample_shape, *self.batch_shape, drawn.shape[-1])

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability of k-hot vectors; -inf outside the support.

        Under validation a value outside the support is a `ValueError`.

        Shapes:
            value `(*S, *B, n)` -> `(*S, *B)`.
        """
        if self._validate_args:
            self._validate_sample(value)
        m = self._root._moments
        exponent = log_density(value.double() - (m.tilted > 0).double(), m).to(self.logits.dtype)
        return torch.where(k_hot(self.k).check(value), exponent, -math.inf)

    @property
    def log_normalizer(self) -> Tensor:
        r"""Log elementary symmetric polynomial :math:`\log e_k(\exp w)`.

        Shapes:
            -> `(*B)`.
        """
        root = self._root
        return log_esp(root._moments, root.logits, root.k).to(self.logits.dtype).expand(self.batch_shape)

    @property
    def mean(self) -> Tensor:
        r"""Inclusion probabilities, :math:`\pi_i = P(z_i = 1)`.

        Shapes:
            -> `(*B, n)`.
        """
        return self._root._moments.mean.to(self.logits.dtype).expand(self._extended_shape())

    @property
    def variance(self) -> Tensor:
        r"""Variance of each entry, :math:`\pi_i (1 - \pi_i)`.

        Shapes:
            -> `(*B, n)`.
        """
        departure = self._root._moments.departure
        return (departure * (1 - departure)).to(self.logits.dtype).expand(self._extended_shape())

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance matrix of the k-hot vector; not differentiable, its derivative being a third one.

        Shapes:
            -> `(*B, n, n)`.
        """
        matrix = covariance(self._root.logits, self._root.k)
        return matrix.expand(self._extended_shape() + self.event_shape)

    @property
    def mode(self) -> Tensor:
        """The likeliest subset, the k largest logits; of equal logits the lowest index wins.

        Shapes:
            -> `(*B, n)`.
        """
        return top_k(self._root.logits.detach(), self._root.k).expand(self._extended_shape())

    def entropy(self) -> Tensor:
        r"""Entropy in nats, :math:`\log e_k - \langle w, \pi\rangle`.

        Shapes:
            -> `(*B)`.
        """
        m = self._root._moments
        return (0.0 - log_density(m.change, m)).to(self.logits.dtype).expand(self.batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All subsets in lexicographic order of their indices.

        Raises:
            ValueError: There are more than a million subsets, or k varies over the batch.

        Shapes:
            -> `(C(n, k), *B, n)`, or `(C(n, k), 1, ..., 1, n)` with `expand=False`.
        """
        n = self.event_shape[0]
        sizes = {self.k} if isinstance(self.k, int) else set(self.k.flatten().tolist())
        if len(sizes) != 1:
            raise ValueError(f"enumerate_support needs one k for the whole batch, got {sorted(sizes)}")
        k = sizes.pop()
        if math.comb(n, k) > _ENUMERABLE:
            raise ValueError(
                f"enumerate_support lists at most {_ENUMERABLE} subsets, got C({n}, {k}) = {math.comb(n, k)}"
            )
        indices = torch.tensor(list(combinations(range(n), k)), dtype=torch.int64, device=self.logits.device)
        values = torch.zeros((len(indices), n), dtype=self.logits.dtype, device=self.logits.device)
        values.scatter_(-1, indices, 1.0)
        values = values.reshape(-1, *(1,) * len(self.batch_shape), n)
        return values.expand(-1, *self._extended_shape()) if expand else values


@register_kl(KSubset, KSubset)  # type: ignore[untyped-decorator]
def _kl_ksubset_ksubset(p: KSubset, q: KSubset) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence needs the same number of items, got {p.event_shape[0]} and {q.event_shape[0]}")
    # -H(p) - E_p[log q], exact because log q is linear in z; different sizes have disjoint supports.
    m, other = p._root._moments, q._root._moments
    cross = log_density(m.change + ((m.tilted > 0).double() - (other.tilted > 0).double()), other)
    divergence = -cross + log_density(m.change, m)
    divergence = divergence - divergence.detach().clamp(max=0)
    same = torch.as_tensor(p.k, device=cross.device) == torch.as_tensor(q.k, device=cross.device)
    divergence = torch.where(same, divergence, math.inf).to(p.logits.dtype)
    return divergence.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))
