import math
from types import SimpleNamespace

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from ksubset.experiments import tasks
from ksubset.experiments.config import RunConfig
from ksubset.experiments.datasets import DataSplit
from ksubset.experiments.tasks import Classification, Reconstruction
from ksubset.experiments.tasks.classification import _ReluDropout
from ksubset.experiments.tasks.pixels import PixelTask, SelectLinear
from ksubset.experiments.tasks.reconstruction import _ToOneChannel, similarity

KINDS = [Classification, Reconstruction]


def create(kind: type[PixelTask], side: int, num_classes: int = 10) -> PixelTask:
    """A task on no images."""
    images, labels = torch.zeros(0, side**2), torch.zeros(0, dtype=torch.long)
    data = DataSplit("None", side, num_classes, 1, *3 * (images, labels))
    return kind(RunConfig(task=kind.name, k=1), data, torch.device("cpu"))


@pytest.mark.parametrize(
    ("kind", "parameters"),
    # The paper's tables, "748" read as 784: 784-256-256-256-10, and two 784-784, then 3x3 convolutions 1-16-16-1.
    [
        (Classification, 784 * 256 + 256 + 2 * (256 * 256 + 256) + 256 * 10 + 10),
        (Reconstruction, 2 * (784 * 784 + 784) + (9 * 16 + 16) + (9 * 256 + 16) + (9 * 16 + 1)),
    ],
)
def test_number_of_parameters(kind: type[PixelTask], parameters: int) -> None:
    assert sum(p.numel() for p in create(kind, 28).network.parameters()) == parameters


def test_layers_of_the_classifier() -> None:
    network = create(Classification, 28).network
    assert [module.p for module in network.modules() if isinstance(module, _ReluDropout)] == [0.2] * 3
    assert sum(isinstance(module, torch.nn.Linear) for module in network.modules()) == 4


@pytest.mark.parametrize("side", [8, 28])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 6])
def test_shapes(kind: type[PixelTask], side: int, rows: int) -> None:
    task = create(kind, side)
    images, labels = torch.rand(6, side**2), torch.arange(6)
    output = task.network(images, torch.ones(3, rows, side**2))
    assert output.shape == (3, 6, 10 if kind is Classification else side**2)
    loss = task.loss(output, images, labels)
    assert loss.shape == (3, 6)
    for training in (True, False):
        metrics = task.metrics(task.statistics(output.detach(), images, labels, training=training))
        assert all(math.isfinite(value) for value in metrics.values())


def test_the_last_convolution_has_the_gradients_of_torchs_own() -> None:
    layer = _ToOneChannel(16).double()
    planes = torch.randn(3, 16, 9, 7, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    variables = [planes, layer.weight, layer.bias]
    output, plain = layer(planes), torch.nn.Conv2d.forward(layer, planes)
    weights = torch.randn_like(output)
    ours = torch.autograd.grad((output * weights).sum(), variables)
    torch.testing.assert_close([output, *ours], [plain, *torch.autograd.grad((plain * weights).sum(), variables)])


@pytest.mark.parametrize("kind", KINDS)
def test_selected_columns_give_the_masked_result(kind: type[PixelTask]) -> None:
    network = create(kind, 8).network.eval()
    images = torch.rand(5, 64)
    mask = torch.zeros(3, 1, 64)
    for row in mask:
        row[0, torch.randperm(64)[:7]] = 1
    dense, sparse = network(images, mask), network(images, mask, 7)
    torch.testing.assert_close(dense, sparse, rtol=1e-4, atol=1e-6)
    weights = list(network.parameters())
    gradients = torch.autograd.grad(dense.square().sum(), weights), torch.autograd.grad(sparse.square().sum(), weights)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [None, 5])
def test_units_that_agree_mask_the_pixels_of_both_once(rows: int | None) -> None:
    images, labels = torch.rand(5, 64), torch.zeros(5, dtype=torch.long)
    data = DataSplit("None", 8, 10, 3, *3 * (images, labels))
    per = "batch" if rows is None else "example"
    config = RunConfig(method="concrete", k=3, subsets_per=per, precision="float32")
    task = Classification(config, data, torch.device("cpu"))
    with torch.no_grad():
        task.selector.logits.zero_()[[0, 1, 2], [7, 7, 30]] = 5.0
    mask = torch.zeros(64)
    mask[[7, 30]] = 1
    assert torch.equal(task.mode().flatten(), mask)
    assert task.outcome()["selected"] == [7, 30]
    share = math.exp(5) / (math.exp(5) + 63)
    assert task.inclusion()[7].item() == pytest.approx(1 - (1 - share) ** 2 * (1 - (1 - share) / 63), rel=1e-4)
    task.network.eval()
    joint = SimpleNamespace(size_at=lambda _: 3, round=0)
    batch = task.batch(torch.arange(5), joint, lambda _: None)  # type: ignore[arg-type]
    pairs = task.selector().mode
    found = batch.losses(pairs[None] if rows is None else pairs.expand(1, 5, -1))
    expected = torch.nn.functional.cross_entropy(task.network(images, mask[None, None])[0], labels, reduction="none")
    torch.testing.assert_close(found.flatten(), expected.mean()[None] if rows is None else expected)


@pytest.mark.parametrize("rows", ["columns", "shared", "shared, relaxed", "of each example", "of each group"])
def test_every_way_to_select_is_the_masked_product(rows: str) -> None:
    layer = SelectLinear(12, 5).double()
    images = torch.rand(5, 12, dtype=torch.float64)
    # Groups of two images, of which the last is not full.
    shape = (3, {"of each example": 5, "of each group": 3}.get(rows, 1), 12)
    mask = torch.rand(shape, dtype=torch.float64)
    if rows != "shared, relaxed":
        mask = torch.zeros_like(mask).scatter_(-1, mask.topk(4).indices, 1.0)
    mask.requires_grad_(rows != "columns")
    inputs = [layer.weight, layer.bias] + ([mask] if mask.requires_grad else [])
    each = mask[:, [0, 0, 1, 1, 2]] if rows == "of each group" else mask
    expected = torch.nn.functional.linear(each * images, layer.weight, layer.bias)
    output = layer.select(images, mask, 4 if rows == "columns" else None)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(expected)
    gradients = (torch.autograd.grad((value * direction).sum(), inputs) for value in (output, expected))
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("p", [0.2, 0.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_drops_its_share_and_scales_the_rest(dtype: torch.dtype, p: float) -> None:
    # An odd number: each draw of 64 bits serves four values, the last one fewer.
    dropped = _ReluDropout(p)(torch.ones(100_001, dtype=dtype))
    assert dropped.dtype == dtype
    scale = torch.tensor(1 / (1 - round(p * 2**15) / 2**15)).to(dtype).item()
    assert set(dropped.unique().tolist()) == {0.0, scale}
    # Five standard deviations of a mean of Bernoulli variables: a false alarm in 1.7 million.
    assert abs((dropped == 0).double().mean() - p) < 5 * math.sqrt(p * (1 - p) / 100_001)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_of_a_unit_tells_nothing_of_its_neighbours(dtype: torch.dtype) -> None:
    dropped = (_ReluDropout(0.2)(torch.ones(100_003, dtype=dtype)) == 0).double()
    dropped = (dropped - dropped.mean()) / dropped.std()
    # Within a draw, in the next ones and in other rows; five standard deviations of a mean of products, a false alarm
    # in 290,000 for the six of them.
    for lag in (1, 2, 3, 4, 8, 256):
        assert abs((dropped[lag:] * dropped[:-lag]).mean()) < 5 / math.sqrt(100_000)
    # Each of the four places in a draw drops the same share; less than a false alarm in 430,000 for all.
    for place in range(4):
        assert abs(dropped[place::4].mean()) < 5 / math.sqrt(25_000)


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 11), (2, 64), (0, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_is_a_mask_on_the_relu_in_value_and_gradient(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    features = torch.randn(shape).to(dtype).requires_grad_()
    state = torch.get_rng_state()
    keep = _ReluDropout(0.2)(torch.ones(shape, dtype=dtype)) > 0
    torch.set_rng_state(state)
    output = _ReluDropout(0.2)(features)
    scale = 1 / (1 - round(0.2 * 2**15) / 2**15)
    expected = features.relu() * keep * scale
    torch.testing.assert_close(output, expected)
    direction = torch.randn(shape).to(dtype)
    gradients = (torch.autograd.grad(value, features, direction) for value in (output, expected))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_of_a_transposed_input(dtype: torch.dtype) -> None:
    features = torch.randn(6, 5).to(dtype)
    output = _ReluDropout(0.2)(features.mT)
    torch.testing.assert_close(output, torch.where(output > 0, 1.25 * features.mT, 0.0), rtol=1e-2, atol=0)
    assert (output > 0).sum() > 0
    assert not (output[features.mT <= 0] != 0).any()


def test_dropout_differs_from_draw_to_draw() -> None:
    dropout, ones = _ReluDropout(0.2), torch.ones(1000)
    assert not torch.equal(dropout(ones), dropout(ones))


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_training_dropout_is_the_relu(dtype: torch.dtype) -> None:
    features = torch.randn(5, 7).to(dtype)
    state = torch.get_rng_state()
    assert torch.equal(_ReluDropout(0.2).eval()(features), features.relu())
    assert torch.equal(torch.get_rng_state(), state)


def test_cross_entropy_and_accuracy_by_hand() -> None:
    task = create(Classification, 8, 2)
    output = torch.tensor([[[0.0, math.log(3)], [0.0, math.log(3)]]])
    labels = torch.tensor([1, 0])
    images = torch.zeros(2, 64)
    torch.testing.assert_close(task.loss(output, images, labels), -torch.tensor([[0.75, 0.25]]).log())
    assert task.metrics(task.statistics(output, images, labels, training=False)) == {"accuracy": 0.5}


def test_binary_cross_entropy_and_psnr_by_hand() -> None:
    task = create(Reconstruction, 8)
    images = torch.full((2, 64), 0.75)
    output = torch.zeros(1, 2, 64)  # grey 0.5 everywhere
    torch.testing.assert_close(task.loss(output, images, torch.zeros(2)), torch.full((1, 2), math.log(2)))
    metrics = task.metrics(task.statistics(output, images, torch.zeros(2), training=True))
    assert metrics == pytest.approx({"psnr": 10 * math.log10(1 / 0.25**2)})


@pytest.mark.parametrize(("side", "sigma"), [(28, 1.5), (8, 0.5)])
def test_metrics_over_batches_are_those_of_the_whole(side: int, sigma: float) -> None:
    task = create(Reconstruction, side)
    images, labels = torch.rand(7, side**2), torch.zeros(7)
    # Near the images, as the similarity of unrelated ones is a difference of rounding errors.
    output = images.logit() + torch.randn(1, 7, side**2)
    sums: dict[str, torch.Tensor] = {}
    for part in torch.arange(7).split(3):
        for name, value in task.statistics(output[:, part], images[part], labels[part], training=False).items():
            sums[name] = sums.get(name, 0) + value
    pixels, whole = output.sigmoid().view(7, side, side).numpy(), images.view(7, side, side).numpy()
    options = {"gaussian_weights": True, "sigma": sigma, "use_sample_covariance": False, "data_range": 1.0}
    expected = {
        "psnr": peak_signal_noise_ratio(whole, pixels, data_range=1.0),
        "ssim": sum(structural_similarity(*pair, **options) for pair in zip(whole, pixels, strict=True)) / 7,
    }
    assert task.metrics(sums) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("side", "sigma"), [(28, 1.5), (8, 0.5), (16, 1.0)])
def test_similarity_counts_no_pixel_at_the_border(side: int, sigma: float) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(4, side, side, generator=generator, dtype=torch.float64)
    noisy = (images + 0.2 * torch.randn(images.shape, generator=generator)).clamp(0, 1)
    found = similarity(images, noisy, sigma)
    options = {"gaussian_weights": True, "sigma": sigma, "use_sample_covariance": False, "data_range": 1.0}
    expected = [structural_similarity(x.numpy(), y.numpy(), **options) for x, y in zip(images, noisy, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(similarity(noisy, images, sigma), found)
    reach = int(3.5 * sigma + 0.5)
    weights = torch.exp(-(torch.arange(-reach, reach + 1.0, dtype=torch.float64) ** 2) / (2 * sigma**2))
    window = torch.outer(weights, weights) / weights.sum() ** 2

    def mean(values: torch.Tensor) -> torch.Tensor:
        return (values.unfold(0, 2 * reach + 1, 1).unfold(1, 2 * reach + 1, 1) * window).sum((-1, -2))

    x, y = images[0], noisy[0]
    covariance = mean(x * y) - mean(x) * mean(y)
    variances = mean(x * x) - mean(x) ** 2 + mean(y * y) - mean(y) ** 2
    by_hand = (2 * mean(x) * mean(y) + 1e-4) * (2 * covariance + 9e-4)
    by_hand /= (mean(x) ** 2 + mean(y) ** 2 + 1e-4) * (variances + 9e-4)
    assert found[0].item() == pytest.approx(by_hand.mean().item(), rel=1e-10)


def test_a_perfect_reconstruction() -> None:
    task = create(Reconstruction, 28)
    images = torch.zeros(2, 784)
    images[:, ::3] = 1
    metrics = task.metrics(task.statistics(1000 * (images[None] - 0.5), images, torch.zeros(2), training=False))
    assert metrics["psnr"] == pytest.approx(120)
    assert metrics["ssim"] == pytest.approx(1, abs=1e-5)


def test_only_reconstructions_are_images() -> None:
    output = torch.randn(1, 2, 64)
    assert create(Classification, 8).images(output) is None
    assert torch.equal(create(Reconstruction, 8).images(output), output.sigmoid())


def test_an_unknown_task_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"expected one of classification, reconstruction, .*, got 'sorting'"):
        tasks.find("sorting")
