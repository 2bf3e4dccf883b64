"""What modules are, as named digests: their classes, settings and state."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ksubset._support.identity import digest

__all__ = ["digest_of", "digests"]


def digests(name: str, module: nn.Module) -> dict[str, str]:
    """Of a module and all in it: the class, public attributes, parameters and buffers of each, by dotted name
    that starts with `name`.

    Raises:
        TypeError: An attribute cannot be pickled; the message names it.
        ImportError: joblib is missing.
    """
    result = {}
    for path, part in module.named_modules(prefix=name):
        result[path] = f"{type(part).__module__}.{type(part).__qualname__}"
        for attribute, value in vars(part).items():
            # Whether it trains is up to whoever trains it.
            if not attribute.startswith("_") and attribute != "training":
                try:
                    result[f"{path}.{attribute}"] = digest_of(value)
                except TypeError as error:
                    raise TypeError(f"{path}.{attribute}: {error}") from error
    return result | {f"{name}.{key}": digest_of(value) for key, value in module.state_dict().items()}


def digest_of(value: Any) -> str:
    """Digest of any value, tensors and what has them in it included; a TypeError if it cannot be pickled."""
    return digest(_plain(value))


def _plain(value: Any) -> Any:
    """With arrays instead of tensors, which do not pickle the same in every process."""
    if isinstance(value, Tensor):
        data = value.detach().cpu().flatten().contiguous()
        return str(value.dtype), tuple(value.shape), data.view(torch.uint8).numpy()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
