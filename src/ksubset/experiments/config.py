"""Every setting of a run, with the paper's values as defaults."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PRECISIONS", "SCHEDULES", "SUBSETS_PER", "RunConfig"]

SUBSETS_PER = ("batch", "example", "group")
PRECISIONS = ("mixed", "float32")
SCHEDULES = ("constant", "cosine")
_MOST_SEED = 2**32 - 1
"""What the generators of torch and numpy both take."""


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class RunConfig:
    """One training run: a task on a data set, the subsets learned by one method.

    Defaults follow the paper's appendix on optimization and hyperparameters. Names of tasks, data sets and methods are
    checked where they are known, in :func:`ksubset.experiments.runner.resolve`.

    Raises:
        ValueError: a value is of the wrong kind or out of range; the message says which, and what was expected.
    """

    task: str = _setting(
        "classification",
        "classification or reconstruction, of selected pixels; explain, autoencoder or neighbours, with a subset "
        "of each example",
    )
    dataset: str = _setting(
        "digits",
        "digits, mnist, fashion-mnist or kmnist; also mnist-grey (autoencoder); of explain: xor, orange-skin, "
        "additive, switch, syn1, ... or syn6; of pixels, also NAME of a file NAME.npz in the folder KSUBSET_DATA",
    )
    method: str = _setting("sfess-v", "gs, stgs, sfess, sfess-v, simple, imle, ncpss or hybrid: gradient estimator")
    k: int | None = _setting(None, "size of the subsets; by default the data set's own (30 pixels, and 10 of digits)")
    k_start: int | None = _setting(None, "size of the subsets in the first epoch, annealed to k; by default k itself")
    k_until: float = _setting(0.5, "fraction of the epochs after which the annealed size has reached k, exponentially")
    epochs: int = _setting(500, "passes over the training data")
    samples: int = _setting(5, "subsets M drawn for a gradient")
    subsets_per: str = _setting("batch", "draw the M subsets per 'batch' (the paper), 'example', or 'group' of 32")
    seed: int = _setting(0, "seed of all randomness of the run")
    batch_size: int = _setting(1024, "examples in a batch")
    selector_lr: float = _setting(1e-2, "Adam's learning rate for the selector's logits")
    selector_beta1: float = _setting(0.99, "Adam's first decay rate for the selector's logits (the second is 0.999)")
    network_lr: float = _setting(1e-4, "Adam's learning rate for the network")
    weight_decay: float = _setting(1e-4, "Adam's weight decay for the network (none for the selector)")
    lr_schedule: str = _setting("constant", "learning rates over the epochs: 'constant' (the paper), or 'cosine', to 0")
    tuning: float = _setting(
        0.0, "fraction of the epochs, at the end, that train the network alone on the likeliest pixels"
    )
    precision: str = _setting(
        "mixed", "'mixed': bfloat16 in matrix products on hardware made for it (as the paper); or 'float32' throughout"
    )
    temperature_start: float = _setting(1.0, "temperature of gs and stgs in the first epoch")
    temperature_end: float = _setting(0.01, "temperature of gs and stgs in the last epoch, reached exponentially")

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
        self._check("weight_decay", self._number("weight_decay") and self.weight_decay >= 0, "a finite number >= 0")

    def _whole(self, name: str, least: int) -> bool:
        value = getattr(self, name)
        # bool is a subclass of int, and seed=True is a slip of the keyboard, not seed 1.
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    def _number(self, name: str) -> bool:
        value = getattr(self, name)
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

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
