"""Reconstruction of an image from k of its pixels."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import DataSplit
from ksubset.experiments.tasks.base import Metric
from ksubset.experiments.tasks.pixels import PixelNetwork, PixelTask, SelectLinear

__all__ = ["Reconstruction", "ReconstructionNetwork", "similarity"]

_CPU_PIECE = 256
# Mean squared errors of less are rounding of float32.
_LEAST_ERROR = 1e-12


def similarity(images: Tensor, others: Tensor, sigma: float) -> Tensor:
    """Structural similarity (SSIM) of images with grey levels in [0, 1].

    Means, variances and covariances are those of the Gaussian weights, without a correction for small samples, and
    the similarity is averaged over the pixels whose whole window lies within the image: as in the reference, and as in
    scikit-image with ``gaussian_weights=True, use_sample_covariance=False, data_range=1``.

    Arguments:
        images: `(N, H, W)`.
        others: what they are compared with, `(N, H, W)`; which is which makes no difference.
        sigma: standard deviation of the weights, in pixels; they reach to 3.5 times of it.

    Returns:
        `(N,)`, at most 1.

    References:
        Wang, Bovik, Sheikh and Simoncelli (2004), https://doi.org/10.1109/TIP.2003.819861.
    """
    reach = int(3.5 * sigma + 0.5)
    weights = torch.exp(
        -(torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device) ** 2) / (2 * sigma**2)
    )
    weights = weights / weights.sum()
    maps = torch.cat([images, others, images * images, others * others, images * others])[:, None]
    smooth = functional.conv2d(functional.conv2d(maps, weights.view(1, 1, 1, -1)), weights.view(1, 1, -1, 1))
    x, y, xx, yy, xy = smooth.view(5, len(images), -1)
    c1, c2 = 0.01**2, 0.03**2
    above = (2 * x * y + c1) * (2 * (xy - x * y) + c2)
    below = (x * x + y * y + c1) * (xx - x * x + yy - y * y + c2)
    averages: Tensor = (above / below).mean(1)
    return averages


class _ToOneChannel(nn.Conv2d):
    """A 3x3 convolution from many channels to one."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 1, 3, padding=1)

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu":
            return super().forward(input)
        assert self.bias is not None
        output: Tensor = _CpuToOneChannel.apply(input, self.weight.to(input.dtype), self.bias.to(input.dtype))
        return output


class _CpuToOneChannel(torch.autograd.Function):
    """On a CPU, the gradient of such a weight is as dear as that of one with 16 outputs, unless sides are exchanged.

    It is the correlation of the input with the gradient of the output; and that is, mirrored, the weight's gradient of
    the convolution that takes the one channel to the many.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(input, weight)
        return functional.conv2d(input, weight, bias, padding=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        planes, weight = ctx.saved_tensors
        backward = torch.ops.aten.convolution_backward
        padded = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)  # stride, padding, dilation, not transposed, one group
        to_planes, _, _ = backward(grad, planes, weight, None, *padded, (True, False, False))
        last = grad.to(memory_format=torch.channels_last)  # the same memory, but the fast kernel goes by its strides
        _, mirrored, _ = backward(planes, last, weight.transpose(0, 1), None, *padded, (False, True, False))
        return to_planes, mirrored.flip(-2, -1).transpose(0, 1), grad.sum((0, 2, 3))


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
            _ToOneChannel(channels),
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

    PSNR is that of the mean squared error over all pixels of all images, and at most 120 dB; SSIM is the mean over the
    images.
    """

    name: ClassVar[str] = "reconstruction"
    label: ClassVar[str] = "Reconstruction"
    measures: ClassVar[Mapping[str, Metric]] = {"psnr": Metric("PSNR (dB)"), "ssim": Metric("SSIM")}

    def __init__(self, config: RunConfig, data: DataSplit, device: torch.device) -> None:
        super().__init__(config, data, device)
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
            square = (-1, self.side, self.side)
            ssim = similarity(images.expand(pixels.shape).reshape(square), pixels.view(square), self._sigma)
            sums |= {"ssim": ssim.sum(), "images": torch.tensor(ssim.numel())}
        return sums

    def metrics(self, statistics: Mapping[str, Tensor]) -> dict[str, float]:
        error = float(statistics["squared_error"]) / float(statistics["pixels"])
        values = {"psnr": -10 * math.log10(max(error, _LEAST_ERROR))}
        if "ssim" in statistics:
            values["ssim"] = float(statistics["ssim"]) / float(statistics["images"])
        return values

    def images(self, output: Tensor) -> Tensor:
        return output.sigmoid()
