"""The subset autoencoder, and the terms of its evidence lower bound."""

import itertools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ksubset.applications.vae.data import check_images
from ksubset.distributions import PartitionedKSubset
from ksubset.training import Batch

__all__ = ["SubsetAutoencoder", "SubsetEncoder", "dense"]

# Numbers that the decoder is asked for at once: bounds the working memory to a few times 32 MiB in float32.
_BLOCK = 2**23


class SubsetEncoder(nn.Module):
    """Subsets of k of n items in each group, independent given the image: the approximate posterior of the code.

    One distribution over all groups of an image, so that every estimator sees the loss that they have in common.

    Arguments:
        score: Maps images to logits `(B, groups * n)`, those of a group side by side.
        groups: Number of groups.
        n: Number of items of a group.
        k: Size of the subset of a group.

    Raises:
        TypeError: A number is no integer.
        ValueError: `groups` or `n` is below 1, `k` below 0 or above n; or, when used, `score` gives another number of
            logits.

    Shapes:
        images `(B, pixels)` -> `PartitionedKSubset` with logits `(B, groups * n)`.

    Example:
        >>> encoder = SubsetEncoder(nn.Linear(64, 4 * 6), groups=4, n=6, k=2)
        >>> codes = encoder(torch.rand(10, 64)).mode
        >>> codes.view(10, 4, 6).sum(-1).unique()  # two of each group
        tensor([2.])
    """

    def __init__(self, score: nn.Module, groups: int, n: int, k: int) -> None:
        super().__init__()
        self.score = score
        self.groups, self.n, self.k = _checked_sizes(groups, n, k)

    def forward(self, images: Tensor) -> PartitionedKSubset:
        logits = self.score(images)
        if logits.shape[-1] != self.groups * self.n:
            raise ValueError(
                f"score must give {self.groups} * {self.n} = {self.groups * self.n} logits, got {logits.shape[-1]}"
            )
        return self.subsets(logits)

    def subsets(self, logits: Tensor) -> PartitionedKSubset:
        """The distribution with these logits, `(*B, groups * n)`; with zeros the prior, all subsets alike."""
        group = torch.arange(self.groups).repeat_interleave(self.n)
        # What a network gives is NaN where a training diverges, which the training reports.
        return PartitionedKSubset(group, self.k, logits, validate_args=False)

    def extra_repr(self) -> str:
        return f"groups={self.groups}, n={self.n}, k={self.k}"


class SubsetAutoencoder(nn.Module):
    r"""A variational autoencoder with subsets as codes, and Bernoulli pixels.

    .. math:: \log p(x) \geq E_{z \sim q(z|x)}[\log p(x|z)] - \sum_g \Big(\log\tbinom{n}{k} - H(q_g(z|x))\Big)

    The prior has all codes alike, so that the divergence is known in closed form, with its gradient: sampled is the
    first term alone. `batch` gives what `ksubset.training.JointTraining` trains with, `encoder` being the selector and
    `decoder` the network.

    References:
        Niepert, Minervini and Franceschi (2021), Implicit MLE, https://arxiv.org/abs/2106.01798, section 6.2.
        Ahmed, Zeng, Niepert and Van den Broeck (2023), SIMPLE, https://arxiv.org/abs/2210.01941.

    Arguments:
        score: Maps images to logits `(B, groups * n)`.
        decoder: Maps codes `(..., groups * n)` to log-odds of the pixels, `(..., pixels)`.
        groups: Number of groups.
        n: Number of items of a group.
        k: Size of the subset of a group.

    Raises:
        TypeError, ValueError: As `SubsetEncoder` says.

    Example:
        >>> model = dense(64, groups=4, n=6, k=2)
        >>> images = torch.rand(10, 64).round()
        >>> model.elbo(images, num_samples=3).shape
        torch.Size([10])
    """

    def __init__(self, score: nn.Module, decoder: nn.Module, groups: int, n: int, k: int) -> None:
        super().__init__()
        self.encoder = SubsetEncoder(score, groups, n, k)
        self.decoder = decoder

    def batch(self, images: Tensor) -> Batch:
        """What a step of the training is about: the negative bound on these images.

        Raises:
            TypeError, ValueError: The images are no numbers in [0, 1].
        """
        check_images(images)
        return Batch(lambda code: -self.log_pixels(code, images), inputs=(images,), penalty=self.divergence)

    def log_pixels(self, code: Tensor, images: Tensor) -> Tensor:
        """Logarithm of the probability of images given codes; of grey levels its mean over binarised images.

        Raises:
            ValueError: The images are of another size than the decoder's.

        Shapes:
            code `(*S, B, groups * n)`, images `(B, pixels)` -> `(*S, B)`.
        """
        return _log_bernoulli(self.decoder(code), images)

    def divergence(self, dist: Any) -> Tensor:
        """Kullback-Leibler divergence from the prior in nats: the logarithm of the number of codes, less the entropy.

        Exact, with an exact gradient.

        Arguments:
            dist: A `PartitionedKSubset`.

        Shapes:
            logits `(*B, n)` -> `(*B)`.
        """
        groups = zip(dist.groups.bincount().tolist(), dist.low.tolist(), dist.k.tolist(), strict=True)
        number = sum(math.log(sum(math.comb(n, size) for size in range(low, k + 1))) for n, low, k in groups)
        divergence: Tensor = number - dist.entropy()
        # Of two numbers that are alike rounding could leave less than nothing.
        return divergence - divergence.detach().clamp(max=0)

    def elbo(self, images: Tensor, num_samples: int = 1, generator: Generator | None = None) -> Tensor:
        """The evidence lower bound in nats, estimated by codes drawn for each image.

        Arguments:
            images: Numbers in [0, 1].
            num_samples: Codes of each image.
            generator: Of the codes; by default torch's own.

        Raises:
            TypeError, ValueError: The images are no numbers in [0, 1], or of another size than the decoder's, or there
                are no samples. What the encoder does not take is an error of its layers.

        Shapes:
            images `(B, pixels)` -> `(B)`.
        """
        return self.bounds(images, num_samples, generator)[0]

    def bounds(self, images: Tensor, num_samples: int = 1, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        r"""The bound of `elbo`, and a closer one from the same codes.

        .. math:: \log \frac{1}{S} \sum_s \frac{p(x|z_s)\, p(z_s)}{q(z_s|x)}

        needs the probabilities of the codes, which are exact here. In expectation it rises with S, to log p(x).

        References:
            Burda, Grosse and Salakhutdinov (2016), Importance Weighted Autoencoders, https://arxiv.org/abs/1509.00519.

        Shapes:
            images `(B, pixels)` -> `(B)` twice.
        """
        check_images(images)
        _check_integer("num_samples", num_samples, 1)
        dist = self.encoder(images)
        divergence = self.divergence(dist)
        prior = self.encoder.subsets(dist.logits.new_zeros(dist.event_shape)).log_normalizer
        drawn, weights = [], []
        piece = max(1, _BLOCK // max(1, images.numel()))
        for start in range(0, num_samples, piece):
            code = dist.sample((min(piece, num_samples - start),), generator=generator)
            drawn.append(self.log_pixels(code, images))
            weights.append(drawn[-1] - prior - dist.log_density(code).to(prior.dtype))
        closer = torch.cat(weights).logsumexp(0) - math.log(num_samples)
        return torch.cat(drawn).mean(0) - divergence, closer

    def exact_elbo(self, images: Tensor) -> Tensor:
        """The evidence lower bound as a sum over all codes.

        Raises:
            TypeError: The images are no floating-point tensor.
            ValueError: There are more than a million codes, or the images are not as `elbo` wants them.

        Shapes:
            images `(B, pixels)` -> `(B)`.
        """
        check_images(images)
        dist = self.encoder(images)
        codes = dist.enumerate_support(expand=False)
        total = torch.zeros_like(dist.logits[..., 0])
        for some in codes.split(max(1, _BLOCK // max(1, images.numel()))):
            code = some.expand(-1, *dist.logits.shape)
            # Decoded once for all images.
            log_pixels = _log_bernoulli(self.decoder(some), images)
            total = total + (dist.log_density(code).exp().to(total.dtype) * log_pixels).sum(0)
        return total - self.divergence(dist)

    def reconstruct(self, images: Tensor) -> Tensor:
        """Probabilities of the pixels given the likeliest code of each image.

        Shapes:
            images `(B, pixels)` -> `(B, pixels)`.
        """
        check_images(images)
        pixels: Tensor = self.decoder(self.encoder(images).mode).sigmoid()
        return pixels

    def generate(self, num_images: int, generator: Generator | None = None) -> Tensor:
        """Probabilities of the pixels given codes from the prior.

        Shapes:
            -> `(num_images, pixels)`.
        """
        weight = next(self.parameters(), torch.empty(0))
        prior = self.encoder.subsets(weight.new_zeros(self.encoder.groups * self.encoder.n))
        pixels: Tensor = self.decoder(prior.sample((num_images,), generator=generator)).sigmoid()
        return pixels


def _log_bernoulli(log_odds: Tensor, images: Tensor) -> Tensor:
    """Log-probability of pixels, their sum: log_odds `(*S, B, pixels)`, images `(B, pixels)` -> `(*S, B)`."""
    if images.shape[-1] != log_odds.shape[-1]:
        raise ValueError(f"images must have the decoder's {log_odds.shape[-1]} pixels, got {images.shape[-1]}")
    return (images * log_odds).sum(-1) - functional.softplus(log_odds).sum(-1)


def dense(
    pixels: int, groups: int = 20, n: int = 20, k: int = 10, widths: Sequence[int] = (512, 256)
) -> SubsetAutoencoder:
    """A subset autoencoder of linear layers; the defaults are those of the papers that `SubsetAutoencoder` names.

    Arguments:
        pixels: Of an image.
        groups: Number of groups.
        n: Number of items of a group.
        k: Size of the subset of a group.
        widths: Of the hidden layers of the encoder, and in the reverse order of the decoder.

    Raises:
        TypeError, ValueError: As `SubsetEncoder` says.

    Example:
        >>> model = dense(784)
        >>> model.encoder(torch.rand(3, 784)).logits.shape  # 20 groups of 20
        torch.Size([3, 400])
    """
    groups, n, k = _checked_sizes(groups, n, k)  # before layers that cannot be
    ends = pixels, *widths, groups * n
    return SubsetAutoencoder(_layers(ends), _layers(ends[::-1]), groups, n, k)


def _checked_sizes(groups: int, n: int, k: int) -> tuple[int, int, int]:
    for name, value, least in (("groups", groups, 1), ("n", n, 1), ("k", k, 0)):
        _check_integer(name, value, least)
    if k > n:
        raise ValueError(f"k must be at most the number of items of a group, {n}, got {k}")
    return int(groups), int(n), int(k)


def _check_integer(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def _layers(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
