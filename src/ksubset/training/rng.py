"""Seeds, and the states of torch's generators."""

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["get_random_state", "seeded", "set_random_state"]


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch's generators, of the CPU and the device, and leave them afterwards as they were.

    They are those of the process: in several threads at a time no seed holds.

    Arguments:
        seed: Any integer.
        device: Where random numbers will be drawn.

    Raises:
        TypeError: The seed is no integer.
        RuntimeError: There is no such device.
        ValueError: The seed is outside of 64 bits.

    Example:
        >>> def numbers() -> Tensor:
        ...     with seeded(7):
        ...         return torch.rand(3)
        >>> torch.equal(numbers(), numbers())
        True
    """
    device, seed = torch.device(device), operator.index(seed)
    cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if cuda else []):
        # torch.manual_seed would also seed the devices that are not put back.
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def get_random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's generators, of the CPU and the device."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Go on where `get_random_state` was called; that of a device that is not used here is left out."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
