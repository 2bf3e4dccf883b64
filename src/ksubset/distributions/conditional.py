"""Independent Bernoulli draws, given how many of each group are ones: what all our distributions are."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Generator, Size, Tensor
from torch.distributions import constraints

from ksubset.distributions.base import SubsetDistribution
from ksubset.distributions.derived import derived, kept, number_of_changes
from ksubset.distributions.parts import Part, gathered, sized, sizes_of_rows
from ksubset.numerics.checks import check_feasible, check_items, check_shape
from ksubset.numerics.distinct import sample_distinct
from ksubset.numerics.encoding import ascending
from ksubset.numerics.inversion import SamplingTable, sampling_table
from ksubset.numerics.joint import covariance_from, covariance_product_from
from ksubset.numerics.moments import Moments, attach, entropy, log_density
from ksubset.numerics.quadrature import Solution, solve
from ksubset.numerics.sampling import Sampler
from ksubset.numerics.tilt import largest_size
from ksubset.numerics.topk import top_k

__all__ = ["ConditionalBernoulli"]

# Subsets that `enumerate_support` is willing to list.
_ENUMERABLE = 1_000_000
# Distinct subsets may have to be unlikely ones: only what could not be told from a mask is taken to be certain there.
_FAR = 2.0**20


class ConditionalBernoulli(SubsetDistribution):
    """The law of independent Bernoulli draws, given that the ones of every part are as many as it asks for.

    The base of `KSubset`, `AtMostKSubset` and `PartitionedKSubset`. A subclass checks its sizes and calls `_set_up`.
    """

    # Elementwise, because torch's vector constraints fail on empty batches; sizes are checked by hand.
    arg_constraints = {  # noqa: RUF012 - the name and the form are torch's
        "logits": constraints.real,
        "probs": constraints.unit_interval,
    }
    has_enumerate_support = True
    _base: "ConditionalBernoulli | None" = None
    _parts: Sequence[Part]
    _results: dict[str, Any]
    _changes: int

    def _set_up(
        self, name: str, parameter: Tensor, batch_shape: Size, parts: Sequence[Part], validate_args: bool | None
    ) -> None:
        self._parts = parts
        if not torch.compiler.is_compiling() and parameter.is_inference():
            parameter = parameter.clone()  # torch does not count its changes, so none may come
        if parameter.shape[:-1] != batch_shape:
            parameter = parameter.expand(*batch_shape, -1)
        setattr(self, name, parameter)
        self._results = {}
        if torch.compiler.is_compiling():
            validate_args = False  # no value can be read there, and torch's own checks cannot be traced
        super().__init__(batch_shape, parameter.shape[-1:], validate_args=validate_args)
        if self._validate_args:
            for part in parts:
                check_feasible(gathered(self.logits, part, -math.inf), part.low, part.high, name)
        self._changes = number_of_changes(parameter)

    @property
    def _root(self) -> "ConditionalBernoulli":
        """The distribution that does the work, of which this one is an expansion."""
        return self if self._base is None else self._base

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return sized(self._parts)

    @derived
    def logits(self) -> Tensor:
        """Log-odds `(*B, n)`, where `probs` were given those of these; -inf excludes an item, +inf includes it."""
        if self._base is not None:
            logits: Tensor = self._base.logits
            return logits.expand(self._extended_shape())
        probs: Tensor = self.probs
        inside = (probs > 0) & (probs < 1)
        # The unused branch must have a finite gradient, or masking it would give 0 * inf.
        theta = torch.where(inside, probs, 0.5)
        limit = torch.where(probs == 1, math.inf, torch.where(probs == 0, -math.inf, math.nan)).to(theta.dtype)
        return torch.where(inside, theta.log() - torch.log1p(-theta), limit)

    @derived
    def probs(self) -> Tensor:
        """The parameters of the independent draws, `(*B, n)`; NOT the inclusion probabilities."""
        probs: Tensor = self.logits.sigmoid() if self._base is None else self._base.probs
        return probs.expand(self._extended_shape())

    @property
    def _parameter(self) -> tuple[str, Tensor]:
        """Name and value of the parameter that was given."""
        given = self._root.__dict__
        name = "logits" if "logits" in given else "probs"
        return name, given[name]

    def _shown(self) -> str:
        return f"{self._parameter[0]}: {tuple(self._extended_shape())}"

    def _start_again(self) -> None:
        """Check the parameter as the first one was, and forget what followed from that."""
        self._set_up(*self._parameter, self.batch_shape, self._parts, self._validate_args)

    def __getstate__(self) -> dict[str, Any]:
        # Changes of a copied parameter are counted from 0.
        return {**self.__dict__, "_results": {}}

    @property
    def param_shape(self) -> Size:
        """Shape of the logits, `(*B, n)`."""
        return self._extended_shape()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = check_shape("batch_shape", batch_shape)
        try:
            fits = torch.broadcast_shapes(self.batch_shape, batch_shape) == batch_shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(
                f"batch_shape must be one that {tuple(self.batch_shape)} expands to, got {tuple(batch_shape)}"
            )
        for name in {"k", "low", "groups"} & self.__dict__.keys():
            value = getattr(self, name)
            of_batch = isinstance(value, Tensor) and self._parts[0].items is None
            setattr(new, name, value.expand(batch_shape) if of_batch else value)
        new._parts = [
            part if part.items is not None else Part(None, *part.expanded(batch_shape)) for part in self._parts
        ]
        new._base = self._root
        super(ConditionalBernoulli, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    # Kept without gradients, which `attach` adds, so that a graph is never used twice and copies can be made.

    @kept
    def _solutions(self) -> list[Solution]:
        return [solve(rows, part.low, part.high) for rows, part in self._logits_of_parts()]

    @kept
    def _complements(self) -> list[Solution]:
        """Solutions for what is left out, which has the small ends of the probabilities that are close to 1."""
        complements = []
        for rows, part in self._logits_of_parts():
            # A place without an item is left out anyway.
            m = rows.shape[-1]
            low = m - part.high
            complements.append(solve(-rows, low, low if part.low is part.high else m - part.low))
        return complements

    @kept
    def _samplers(self) -> list[Sampler]:
        return [Sampler(rows, part.low, part.varying) for rows, part in self._logits_of_parts()]

    @kept
    def _tables_of_all(self) -> list[SamplingTable]:
        return [sampling_table(rows, part.low, part.varying, _FAR) for rows, part in self._logits_of_parts()]

    def _logits_of_parts(self) -> Iterator[tuple[Tensor, Part]]:
        logits = self.logits
        return ((gathered(logits, part, -math.inf), part) for part in self._parts)

    def _moments(self) -> list[Moments]:
        return [attach(s, rows) for s, (rows, _) in zip(self._solutions, self._logits_of_parts(), strict=True)]

    def _sum(self, values: Sequence[Tensor]) -> Tensor:
        """The sum over all rows, from one value of each: `(*S, *B)` or `(*S, *B, R)` -> `(*S, *B)`."""
        summed = [v if part.items is None else v.sum(-1) for v, part in zip(values, self._parts, strict=True)]
        return torch.stack(summed).sum(0) if len(summed) > 1 else summed[0]

    def sample(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        def draw(number: int) -> Tensor:
            root, dtype = self._root, self.logits.dtype
            drawn = [sampler.k_hot(number, dtype, generator) for sampler in root._samplers]
            return root.from_rows(
                [x.reshape(number, *root._rows_of(x, p)) for x, p in zip(drawn, root._parts, strict=True)]
            )

        return self._repeated(sample_shape, draw)

    def sample_indices(self, sample_shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        """Draw exact samples as the ascending indices of their items, without building vectors of n where k is small.

        K is the size of the largest subset that may occur, and smaller ones end in -1.

        Shapes:
            -> `(*sample_shape, *B, K)`, int64.
        """

        def draw(number: int) -> Tensor:
            root = self._root
            if root._parts[0].items is None:
                drawn = root._samplers[0].indices(number, generator)
                return drawn.reshape(number, *root.batch_shape, drawn.shape[-1])
            most = sum(int(part.high.sum()) for part in root._parts if isinstance(part.high, Tensor))
            return ascending(root.sample((number,), generator=generator) > 0, most)

        return self._repeated(sample_shape, draw)

    def _rows_of(self, drawn: Tensor, part: Part) -> tuple[int, ...]:
        """The shape of one draw of a part: `(*B, m)`, or `(*B, R, m)` where it has several rows."""
        return (*self.batch_shape, *(() if part.items is None else part.items.shape[:1]), drawn.shape[-1])

    def _repeated(self, sample_shape: Any, draw: Any) -> Tensor:
        """Samples `(*sample_shape, *B, K)` by draws `(number, *root's B, K)`: rows that `expand` repeats are draws."""
        sample_shape = check_shape("sample_shape", sample_shape)
        if self._base is None:
            drawn = draw(math.prod(sample_shape))
            return drawn.reshape(*sample_shape, *self.batch_shape, drawn.shape[-1])  # type: ignore[no-any-return]
        depth, inner = len(self.batch_shape), self._root.batch_shape
        base = (1,) * (depth - len(inner)) + tuple(inner)
        repeats = [size // max(1, row) if row != size else 1 for size, row in zip(self.batch_shape, base, strict=True)]
        drawn = draw(math.prod(sample_shape) * math.prod(repeats))
        drawn = drawn.reshape(*sample_shape, *repeats, *base, drawn.shape[-1])
        # Each repeated axis is interleaved with the axis of size 1 that it stands for.
        lead = len(sample_shape)
        pairs = [axis for i in range(depth) for axis in (lead + i, lead + depth + i)]
        drawn = drawn.permute(*range(lead), *pairs, -1)
        return drawn.reshape(*sample_shape, *self.batch_shape, drawn.shape[-1])  # type: ignore[no-any-return]

    def sample_distinct(self, num_samples: int, *, generator: Generator | None = None) -> Tensor:
        root = self._root
        row = torch.arange(math.prod(root.batch_shape), device=self.logits.device).reshape(root.batch_shape)
        row = row.expand(self.batch_shape).flatten()
        stages = []
        for table, part in zip(root._tables_of_all, root._parts, strict=True):
            number = 1 if part.items is None else len(part.items)
            stages += [(table, row * number + place) for place in range(number)]
        masks = iter(sample_distinct(stages, num_samples, generator))
        rows = [
            next(masks) if part.items is None else torch.stack([next(masks) for _ in part.items], -2)
            for part in root._parts
        ]
        chosen = root.from_rows([x.to(self.logits.dtype) for x in rows])
        return chosen.movedim(1, 0).reshape(num_samples, *self._extended_shape())

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability of k-hot vectors; -inf outside the support.

        It has the logits' dtype: in float16, which ends at -65504, an unlikely subset has -inf too. `log_density` is in
        float64. Under validation a value outside the support is a `ValueError`.

        Shapes:
            value `(*S, *B, n)` -> `(*S, *B)`.
        """
        if self._validate_args:
            self._validate_sample(value)
        density = self.log_density(value).to(self.logits.dtype)
        return torch.where(self.support.check(value), density, -math.inf)

    def log_density(self, value: Tensor) -> Tensor:
        root = self._root
        check_items("value", value, self.event_shape[0])
        terms = [
            log_density(gathered(value.double(), part, 0.0) - (m.tilted > 0).double(), m)
            for m, part in zip(root._moments(), root._parts, strict=True)
        ]
        return root._sum(terms)

    @property
    def log_normalizer(self) -> Tensor:
        r"""Logarithm of the sum of :math:`\exp\langle w, z\rangle` over all subsets; for k of n, :math:`\log e_k`.

        Shapes:
            -> `(*B)`.
        """
        root = self._root
        return root._sum([m.log_normalizer for m in root._moments()]).to(self.logits.dtype).expand(self.batch_shape)

    @property
    def mean(self) -> Tensor:
        root = self._root
        mean = root.from_rows([m.mean for m in root._moments()])
        return mean.to(self.logits.dtype).expand(self._extended_shape())

    @property
    def variance(self) -> Tensor:
        r"""Variance of each entry, :math:`\pi_i (1 - \pi_i)`, with relative accuracy however small it is.

        Shapes:
            -> `(*B, n)`.
        """
        root = self._root
        complements = zip(root._complements, root._logits_of_parts(), strict=True)
        exclusion = root.from_rows([attach(s, -rows).mean for s, (rows, _) in complements])
        inclusion = root.from_rows([m.mean for m in root._moments()])
        return (inclusion * exclusion).to(self.logits.dtype).expand(self._extended_shape())

    def covariance_product(self, vector: Tensor) -> Tensor:
        root = self._root
        check_items("vector", vector, self.event_shape[0])
        products = [
            covariance_product_from(s, rows, gathered(vector, part, 0.0))
            for s, (rows, part) in zip(root._solutions, root._logits_of_parts(), strict=True)
        ]
        return root.from_rows(products)

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance matrix of the k-hot vector; not differentiable, its derivative being a third one.

        Shapes:
            -> `(*B, n, n)`.
        """
        root, n = self._root, self.event_shape[0]
        solved = zip(root._solutions, root._complements, root._logits_of_parts(), strict=True)
        blocks = [covariance_from(s, complement, rows) for s, complement, (rows, _) in solved]
        if root._parts[0].items is not None:
            # A last row and column for the places without an item.
            matrix = self.logits.new_zeros(*root.batch_shape, n + 1, n + 1)
            for block, part in zip(blocks, root._parts, strict=True):
                assert part.items is not None
                matrix[..., part.items[:, :, None], part.items[:, None, :]] = block
            blocks = [matrix[..., :n, :n]]
        return blocks[0].expand(self._extended_shape() + self.event_shape)

    @property
    def mode(self) -> Tensor:
        """The likeliest subset; of equal logits the lowest index wins.

        Shapes:
            -> `(*B, n)`.
        """
        root = self._root
        largest = root.from_rows([top_k(rows, k) for rows, k in root.to_rows(root.logits.detach())])
        return largest.expand(self._extended_shape())

    def entropy(self) -> Tensor:
        r"""Entropy in nats, the log normaliser less :math:`\langle w, \pi\rangle`.

        Shapes:
            -> `(*B)`.
        """
        root = self._root
        total = root._sum([entropy(m) for m in root._moments()])
        return total.to(self.logits.dtype).expand(self.batch_shape)

    def to_rows(self, scores: Tensor) -> list[tuple[Tensor, int | Tensor]]:
        problems: list[tuple[Tensor, int | Tensor]] = []
        for part in self._parts:
            rows = gathered(scores, part, -math.inf)
            if part.low is not part.high:
                spare = torch.as_tensor(part.high - part.low, device=rows.device)
                place = torch.arange(largest_size(spare, rows.shape[-1]), device=rows.device)
                nothing = torch.where(place < spare[..., None], 0.0, -math.inf).to(rows.dtype)
                rows = torch.cat([rows, nothing.expand(*rows.shape[:-1], -1)], -1)
            problems.append((rows, part.high))
        return problems

    def from_rows(self, rows: Sequence[Tensor]) -> Tensor:
        n = self.event_shape[0]
        if self._parts[0].items is None:
            return rows[0][..., :n]
        flat, places = [], []
        for x, part in zip(rows, self._parts, strict=True):
            assert part.items is not None
            flat.append(x[..., : part.items.shape[-1]].flatten(-2))
            places.append(part.items.flatten())
        # Sorted by item, the places without one come last.
        return torch.cat(flat, -1).index_select(-1, torch.cat(places).argsort()[:n])

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All subsets: the sizes in ascending order, those of a size in lexicographic order of their indices.

        Raises:
            ValueError: There are more than a million subsets, or their size varies over the batch.

        Shapes:
            -> `(N, *B, n)`, or `(N, 1, ..., 1, n)` with `expand=False`.
        """
        n = self.event_shape[0]
        rows = [row for part in self._parts for row in sizes_of_rows(part, n)]
        number = math.prod(sum(math.comb(len(items), k) for k in sizes) for items, sizes in rows)
        if number > _ENUMERABLE:
            what = f"C({n}, {rows[0][1][0]}) = {number}" if len(rows) == 1 and len(rows[0][1]) == 1 else str(number)
            raise ValueError(f"enumerate_support lists at most {_ENUMERABLE} subsets, got {what}")
        choices = [[c for k in sizes for c in itertools.combinations(items, k)] for items, sizes in rows]
        values = torch.zeros(number, n, dtype=self.logits.dtype)
        for value, chosen in zip(values, itertools.product(*choices), strict=True):
            value[list(itertools.chain(*chosen))] = 1.0
        values = values.to(self.logits.device).reshape(-1, *(1,) * len(self.batch_shape), n)
        return values.expand(-1, *self._extended_shape()) if expand else values
