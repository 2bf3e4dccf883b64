"""Subset autoencoders of binarised images."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor

from ksubset.applications.vae import binarize, dense
from ksubset.distributions import SubsetDistribution
from ksubset.experiments import datasets
from ksubset.experiments.config import RunConfig
from ksubset.experiments.tasks.base import Add, Metric, Part, Task
from ksubset.training import Batch, JointTraining

__all__ = ["Autoencoder"]

_SAMPLES: dict[Part, int] = {"validation": 1, "test": 20}
_EXAMPLE_IMAGES = 3
_EVALUATION_CHUNK = 500


@dataclasses.dataclass(frozen=True)
class _Images:
    """Images of one of :data:`ksubset.experiments.datasets.SETS`, how they become binary, and their code."""

    label: str
    source: str
    prepare: Callable[[Tensor, int], Tensor]
    groups: int
    n: int
    k: int
    widths: tuple[int, ...]
    items: ClassVar[str] = "items of a group"


def _mnist(label: str, prepare: Callable[[Tensor, int], Tensor]) -> _Images:
    """With the networks and the code of I-MLE and SIMPLE."""
    return _Images(label, "mnist", prepare, groups=20, n=20, k=10, widths=(512, 256))


class _Split(NamedTuple):
    train: Tensor
    validation: Tensor
    test: Tensor


class Autoencoder(Task):
    """Images coded by subsets: the evidence lower bound, and the closer one of 20 codes.

    Whatever a method trains with, both are those of exact subsets. `subsets_per` says nothing here: each image has its
    own distribution.

    Raises:
        ValueError: there are epochs for the decoder alone.
    """

    name: ClassVar[str] = "autoencoder"
    label: ClassVar[str] = "Subset autoencoder"
    measures: ClassVar[Mapping[str, Metric]] = {
        "elbo": Metric("ELBO (nats)"),
        "log_likelihood": Metric(f"bound of {_SAMPLES['test']} samples (nats)"),
    }
    sets: ClassVar[Mapping[str, Any]] = {
        # Draws would leave little but noise of images as small.
        "digits": _Images("rounded digits", "digits", lambda images, _: images.round(), 10, 8, 2, (128,)),
        "mnist": _mnist("binarised MNIST", binarize),
        "mnist-grey": _mnist("grey MNIST", lambda images, _: images),
    }

    def __init__(self, config: RunConfig, data: _Split, device: torch.device) -> None:
        super().__init__(config, data, device)
        if config.tuning > 0:
            raise ValueError(f"tuning: expected 0, as the bound is that of encoder and decoder, got {config.tuning}")
        self.data = _Split(*(images.to(device) for images in data))
        self.num_examples = len(data.train)
        known = self.sets[config.dataset]
        self.model = dense(data.train.shape[-1], known.groups, known.n, self.k, known.widths).to(device)
        self.selector, self.network = self.model.encoder, self.model.decoder

    @classmethod
    def load(cls, name: str) -> _Split:
        cls.data_set(name)
        known: _Images = cls.sets[name]
        split = datasets.load(known.source)
        images = split.train_images, split.validation_images, split.test_images
        return _Split(*(known.prepare(part, seed) for seed, part in enumerate(images)))

    def batch(self, rows: Tensor, joint: JointTraining, add: Add) -> Batch:
        batch = self.model.batch(self.data.train[rows.to(self.device)])

        def losses(code: Tensor) -> Tensor:
            loss: Tensor = batch.losses(code)
            add({"loss": loss.detach().sum(), "losses": torch.tensor(loss.numel())})
            return loss

        def penalty(dist: SubsetDistribution) -> Tensor:
            divergence = self.model.divergence(dist)
            # Of each code, as the losses are.
            add({"loss": self.config.samples * divergence.detach().sum()})
            return divergence

        return dataclasses.replace(batch, losses=losses, penalty=penalty)

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        return {"elbo": -float(statistics["loss"]) / float(statistics["losses"])}

    @torch.no_grad()
    def evaluate(self, part: Part) -> dict[str, float]:
        self.model.eval()
        images = self.data.validation if part == "validation" else self.data.test
        generator = Generator(self.device).manual_seed(0)
        bounds = [self.model.bounds(some, _SAMPLES[part], generator) for some in images.split(_EVALUATION_CHUNK)]
        elbo, closer = (float(torch.cat(values).mean()) for values in zip(*bounds, strict=True))
        return {"elbo": elbo} | ({"log_likelihood": closer} if part == "test" else {})

    @torch.no_grad()
    def outcome(self) -> dict[str, Any]:
        self.model.eval()
        images = self.data.test[:_EXAMPLE_IMAGES]
        return {
            "side": self._side,
            "originals": _grey(images),
            "reconstructions": _grey(self.model.reconstruct(images)),
        }

    @torch.no_grad()
    def pictures(self) -> dict[str, Tensor]:
        self.model.eval()
        samples = self.model.generate(_EXAMPLE_IMAGES, Generator(self.device).manual_seed(0))
        names = (f"sample {number}" for number in range(1, _EXAMPLE_IMAGES + 1))
        return dict(zip(names, samples.view(-1, self._side, self._side), strict=True))

    @property
    def _side(self) -> int:
        return math.isqrt(self.data.test.shape[-1])


def _grey(images: Tensor) -> list[list[int]]:
    levels: list[list[int]] = (images * 255).round().to(torch.uint8).tolist()
    return levels
