"""Reconstruction of an image from k of its pixels."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ksubset._support.extras import require
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import DataSplit
from ksubset.experiments.tasks.base import Metric
from ksubset.experiments.tasks.pixels import PixelNetwork, PixelTask, SelectLinear

__all__ = ["Reconstruction", "ReconstructionNetwork"]

_CPU_PIECE = 256


class ReconstructionNetwork(PixelNetwork):
    """The paper's decoder (appendix, table "Reconstruction network"): two linear layers, then three convolutions.

    The last sigmoid is left to the loss, which takes it in log space.

    Shapes:
        -> log-odds of the pixels `(S, B, n)`.
    """

    def __init__(self, side: int, channels: int = 16) -> None:
        super().__init__()
        n = side**2
        self.side = side
        self.first = SelectLinear(n, n)
        self.second = nn.Linear(n, n)
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 1, 3, padding=1),
        )
        self.convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's types

    def forward(self, images: Tensor, mask: Tensor, k: int | None = None) -> Tensor:
        features = self.second(functional.relu(self.first.select(images, mask, k)))
        planes = features.view(-1, 1, self.side, self.side).to(memory_format=torch.channels_last)
        # Pieces that stay in a CPU's cache; a GPU wants all images at once.
        pieces = planes.split(_CPU_PIECE) if planes.device.type == "cpu" else [planes]
        return torch.cat([self.convolutions(piece) for piece in pieces]).view(features.shape)


class Reconstruction(PixelTask):
    """Binary cross-entropy, mean over the pixels; PSNR in dB and SSIM, both for pixel values in [0, 1].

    PSNR is that of the mean squared error over all pixels of all images, SSIM the mean over the images.

    Raises:
        ImportError: torchmetrics is missing.
    """

    name: ClassVar[str] = "reconstruction"
    label: ClassVar[str] = "Reconstruction"
    measures: ClassVar[Mapping[str, Metric]] = {"psnr": Metric("PSNR (dB)"), "ssim": Metric("SSIM")}

    def __init__(self, config: RunConfig, data: DataSplit, device: torch.device) -> None:
        super().__init__(config, data, device)
        self._ssim = require("torchmetrics.functional.image").structural_similarity_index_measure
        # The usual window (sigma 1.5, 11 pixels wide) leaves nothing of an 8x8 image; sigma 0.5 means 5 pixels, the
        # same fraction of the side.
        self._sigma = 1.5 if data.side > 11 else 0.5

    def build(self) -> ReconstructionNetwork:
        return ReconstructionNetwork(self.side)

    def loss(self, output: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        targets = images.expand(output.shape)
        return functional.binary_cross_entropy_with_logits(output, targets, reduction="none").mean(-1)

    def statistics(self, output: Tensor, images: Tensor, labels: Tensor, training: bool) -> dict[str, Tensor]:
        pixels = output.sigmoid()
        sums = {
            "squared_error": functional.mse_loss(pixels, images.expand(pixels.shape), reduction="sum"),
            "pixels": torch.tensor(pixels.numel()),
        }
        if not training:
            square = (-1, 1, self.side, self.side)
            truth = images.expand(pixels.shape).reshape(square)
            ssim = self._ssim(pixels.view(square), truth, sigma=self._sigma, data_range=1.0, reduction="none")
            sums |= {"ssim": ssim.sum(), "images": torch.tensor(ssim.numel())}
        return sums

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        error = float(statistics["squared_error"]) / float(statistics["pixels"])
        values = {"psnr": -10 * math.log10(error) if error > 0 else math.inf}
        if "ssim" in statistics:
            values["ssim"] = float(statistics["ssim"]) / float(statistics["images"])
        return values

    def images(self, output: Tensor) -> Tensor:
        return output.sigmoid()
