"""Every setting of a run, with the paper's values as defaults."""

import dataclasses
import hashlib
import inspect
import json
import math
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["PRECISIONS", "SCHEDULES", "SUBSETS_PER", "RunConfig", "descriptions"]

SUBSETS_PER = ("batch", "example", "group")
PRECISIONS = ("mixed", "float32")
SCHEDULES = ("constant", "cosine")
_MOST_SEED = 2**32 - 1
"""What the generators of torch and numpy both take."""


@dataclass(frozen=True)
class RunConfig:
    """One training run: a task on a data set, the subsets learned by one method.

    Defaults follow the paper's appendix on optimization and hyperparameters. Names of tasks, data sets and methods are
    checked where they are known, in :func:`ksubset.experiments.runner.resolve`.

    Arguments:
        task: classification or reconstruction, of selected pixels; explain, autoencoder or neighbours, with a subset
            of each example
        dataset: digits, mnist, fashion-mnist or kmnist; also mnist-grey (autoencoder); of explain: xor, orange-skin,
            additive, switch, syn1, ... or syn6; of pixels, also NAME of a file NAME.npz in the folder KSUBSET_DATA
        method: gs, stgs, sfess, sfess-v, simple, imle, ncpss, hybrid, reinmax, dps, stg, concrete or
            hybrid-pathwise: gradient estimator
        k: size of the subsets; by default the data set's own (30 pixels, and 10 of digits)
        k_start: size of the subsets in the first epoch, annealed to k; by default k itself
        k_until: fraction of the epochs after which the annealed size has reached k, exponentially
        epochs: passes over the training data
        samples: subsets M drawn for a gradient
        subsets_per: draw the M subsets per 'batch' (the paper), 'example', or 'group' of 32
        seed: seed of all randomness of the run
        batch_size: examples in a batch
        selector_lr: Adam's learning rate for the selector's logits
        selector_beta1: Adam's first decay rate for the selector's logits (the second is 0.999)
        network_lr: Adam's learning rate for the network
        weight_decay: Adam's weight decay for the network (none for the selector)
        lr_schedule: learning rates over the epochs: 'constant' (the paper), or 'cosine', to 0
        tuning: fraction of the epochs, at the end, that train the network alone on the likeliest pixels
        precision: 'mixed': bfloat16 in matrix products on hardware made for it (as the paper); or 'float32' throughout
        temperature_start: temperature of gs, stgs, dps, concrete in the first epoch
        temperature_end: their temperature in the last epoch, reached exponentially
        images: what tells the images of a file of one's own from others under its name, filled in when a run starts

    Raises:
        ValueError: a value is of the wrong kind or out of range; the message says which, and what was expected.

    References:
        Wijk, Vinuesa and Azizpour (2024), https://arxiv.org/abs/2407.16058, for the defaults.

    Example:
        >>> config = RunConfig(dataset="mnist", method="gs", epochs=50)
        >>> config.changed()
        {'dataset': 'mnist', 'method': 'gs', 'epochs': 50}
        >>> config.name()
        'classification-mnist-gs-seed0-dadd42fa'
    """

    task: str = "classification"
    dataset: str = "digits"
    method: str = "sfess-v"
    k: int | None = None
    k_start: int | None = None
    k_until: float = 0.5
    epochs: int = 500
    samples: int = 5
    subsets_per: str = "batch"
    seed: int = 0
    batch_size: int = 1024
    selector_lr: float = 1e-2
    selector_beta1: float = 0.99
    network_lr: float = 1e-4
    weight_decay: float = 1e-4
    lr_schedule: str = "constant"
    tuning: float = 0.0
    precision: str = "mixed"
    temperature_start: float = 1.0
    temperature_end: float = 0.01
    images: str | None = dataclasses.field(default=None, metadata={"option": False})

    def __post_init__(self) -> None:
        for name in ("task", "dataset", "method"):
            self._check(name, isinstance(getattr(self, name), str), "a string")
        self._check("k", self.k is None or self._whole("k", 1), "an integer >= 1, or None for the data set's own")
        self._check("k_start", self.k_start is None or self._whole("k_start", 1), "an integer >= 1, or None for k")
        self._check("k_until", self._number("k_until") and 0 < self.k_until <= 1, "a number in (0, 1]")
        for name in ("epochs", "samples", "batch_size"):
            self._check(name, self._whole(name, 1), "an integer >= 1")
        self._check("seed", self._whole("seed", 0) and self.seed <= _MOST_SEED, f"an integer from 0 to {_MOST_SEED}")
        for name, known in (("subsets_per", SUBSETS_PER), ("lr_schedule", SCHEDULES), ("precision", PRECISIONS)):
            self._check(name, getattr(self, name) in known, f"one of {', '.join(known)}")
        for name in ("tuning", "selector_beta1"):
            self._check(name, self._number(name) and 0 <= getattr(self, name) < 1, "a number in [0, 1)")
        for name in ("selector_lr", "network_lr", "temperature_start", "temperature_end"):
            self._check(name, self._number(name) and getattr(self, name) > 0, "a finite number > 0")
        self._check("images", self.images is None or isinstance(self.images, str), "None, or what a run fills in")
        self._check("weight_decay", self._number("weight_decay") and self.weight_decay >= 0, "a finite number >= 0")

    def _whole(self, name: str, least: int) -> bool:
        value = getattr(self, name)
        # bool is a subclass of int, and seed=True is a slip of the keyboard, not seed 1.
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    def _number(self, name: str) -> bool:
        value = getattr(self, name)
        return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name}: expected {expected}, got {getattr(self, name)!r}")

    def changed(self) -> dict[str, Any]:
        """The settings that are not the defaults: these stay when a later version brings another setting."""
        values = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def digest(self) -> str:
        """Eight hexadecimal digits that change with any setting."""
        return hashlib.sha256(json.dumps(self.changed(), sort_keys=True).encode()).hexdigest()[:8]

    def name(self) -> str:
        """A readable name, unique to this configuration: ``classification-digits-sfess-v-seed0-1a2b3c4d``."""
        return f"{self.task}-{self.dataset}-{self.method}-seed{self.seed}-{self.digest()}"


def descriptions() -> dict[str, str]:
    """What each setting is, in the words of the documentation of :class:`RunConfig`; the command line shows them."""
    arguments = (inspect.getdoc(RunConfig) or "").partition("Arguments:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
