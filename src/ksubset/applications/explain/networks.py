"""Networks where the user gives none: one that scores items, and one that answers from some of them."""

import itertools

import torch
from torch import Tensor, nn

__all__ = ["ImageScorer", "ImageSurrogate", "Rescaled", "Scorer", "Surrogate", "TokenScorer", "TokenSurrogate"]

_CHANNELS, _EMBEDDING = 16, 50


def _layers(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for pair in itertools.pairwise(widths):
        layers += [nn.Linear(*pair), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Scorer(nn.Sequential):
    """Columns `(B, n)` to logits of the items `(B, items)`."""

    def __init__(self, num_columns: int, num_items: int, width: int = 32) -> None:
        super().__init__(*_layers(num_columns, width, width, num_items))


class Rescaled(nn.Module):
    """A network whose answers have a mean and a standard deviation of their own, `(outputs)`, in double precision."""

    def __init__(self, network: nn.Module, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, *inputs: Tensor) -> Tensor:
        answers: Tensor = self.mean + self.deviation * self.network(*inputs).double()
        return answers


class Surrogate(nn.Module):
    """Masked columns and the mask, `(B, n)`, to answers `(B, outputs)`."""

    def __init__(self, num_columns: int, num_outputs: int, width: int = 100) -> None:
        super().__init__()
        self.layers = _layers(2 * num_columns, width, width, width, num_outputs)

    def forward(self, masked: Tensor, mask: Tensor) -> Tensor:
        answers: Tensor = self.layers(torch.cat([masked, mask], -1))
        return answers


def _convolutions(channels: int) -> nn.Sequential:
    """Planes at a quarter of the height and width, flat."""
    return nn.Sequential(
        nn.Conv2d(channels, _CHANNELS, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(),
    )  # fmt: skip


class ImageScorer(nn.Sequential):
    """Images `(B, C, H, W)` to logits of the items `(B, items)`."""

    def __init__(self, channels: int, num_items: int) -> None:
        super().__init__(_convolutions(channels), nn.LazyLinear(100), nn.ReLU(), nn.Linear(100, num_items))


class ImageSurrogate(nn.Module):
    """Masked images and the mask, `(B, C, H, W)`, to answers `(B, outputs)`."""

    def __init__(self, channels: int, num_outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _convolutions(2 * channels), nn.LazyLinear(100), nn.ReLU(), nn.Linear(100, num_outputs)
        )

    def forward(self, masked: Tensor, mask: Tensor) -> Tensor:
        answers: Tensor = self.layers(torch.cat([masked, mask], 1))
        return answers


class TokenScorer(nn.Module):
    """Tokens `(B, L)` to logits of their places `(B, L)`: of a word, its neighbours and the mean of all."""

    def __init__(self, num_tokens: int, padding: int) -> None:
        super().__init__()
        self.padding = padding
        self.embedding = nn.Embedding(num_tokens, _EMBEDDING)
        self.near = nn.Conv1d(_EMBEDDING, 100, 3, padding=1)
        self.all = nn.Linear(_EMBEDDING, 100)
        self.score = nn.Conv1d(100, 1, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        there = (tokens != self.padding).unsqueeze(-1)
        words = self.embedding(tokens) * there
        mean = words.sum(1) / there.sum(1).clamp(min=1)
        scores: Tensor = self.score(torch.relu(self.near(words.mT) + self.all(mean).unsqueeze(-1))).squeeze(1)
        return scores


class TokenSurrogate(nn.Module):
    """Masked tokens and the mask, `(B, L)`, to answers `(B, outputs)`, from the sum of the words that are seen."""

    def __init__(self, num_tokens: int, num_outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, _EMBEDDING)
        self.layers = _layers(_EMBEDDING, 100, num_outputs)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        words = self.embedding(tokens) * mask.unsqueeze(-1)
        answers: Tensor = self.layers(words.sum(1) / (1 + mask.sum(1, keepdim=True)))
        return answers
