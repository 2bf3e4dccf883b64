"""Networks for selectors, the user's or a perceptron, and where they are trained."""

import itertools
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ksubset.search.arguments import check_integer

__all__ = ["check_outputs", "device_of", "new_network"]


def new_network(module: Any, hidden: Any, num_inputs: int, num_outputs: int) -> nn.Module:
    """A copy of a module, what a function makes, or, of None, a perceptron; in float32 unless it takes rows as such.

    Arguments:
        module: A module, a function of (num_inputs, num_outputs) that makes one, or None.
        hidden: Widths of the hidden layers of the perceptron.
        num_inputs: Columns that it takes.
        num_outputs: Outputs that it must have.

    Raises:
        TypeError: It is something else, or the widths are.
        ValueError: A width is below 1.
    """
    if module is None:
        if not isinstance(hidden, Sequence | np.ndarray):
            raise TypeError(f"hidden_layer_sizes: expected a sequence of integers, got {hidden!r}")
        widths = [check_integer("hidden_layer_sizes", width, 1) for width in hidden]
        return _perceptron(num_inputs, *widths, num_outputs)
    if isinstance(module, nn.Module):
        return _in_single_precision(deepcopy(module), num_inputs)
    if not callable(module):
        raise TypeError(f"module: expected a torch module, a function that makes one, or None, got {module!r}")
    network = module(num_inputs, num_outputs)
    if not isinstance(network, nn.Module):
        raise TypeError(f"module: expected a function that makes a torch module, got one that made {network!r}")
    return _in_single_precision(network, num_inputs)


@torch.no_grad()
def _in_single_precision(network: nn.Module, num_inputs: int) -> nn.Module:
    """The network in float32, unless it is in double precision and takes rows in float32 all the same."""
    if any(tensor.dtype == torch.float64 for tensor in (*network.parameters(), *network.buffers())):
        try:
            network.cpu().eval()(torch.zeros(2, num_inputs))
        except RuntimeError:  # torch's word for types that do not fit
            return network.float()
    return network


def _perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def check_outputs(network: nn.Module, num_inputs: int, num_outputs: int, argument: str) -> None:
    """Check the shape of outputs for two rows, or raise a ValueError; this also gives shapes to lazy layers."""
    expected = f"expected a network with outputs of shape (N, {num_outputs}) for inputs (N, {num_inputs})"
    try:
        outputs = network.cpu().eval()(torch.zeros(2, num_inputs))
    except RuntimeError as error:  # torch's word for shapes and types that do not fit
        raise ValueError(f"{argument}: {expected}, got an error ({error})") from error
    found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if found != (2, num_outputs):
        raise ValueError(f"{argument}: {expected}, got {found} for N = 2")


def device_of(device: Any) -> torch.device:
    """The device of a name, or a ValueError; of None the GPU if CUDA has one, else the CPU."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    # torch reports devices that it does not know and ones that are not there in these ways.
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device: expected a device that torch has, got {device!r} ({error})") from error
    return found
