import math

import pytest

from ksubset import ExponentialSchedule, LinearSchedule
from ksubset.schedules import Schedule


def test_equal_steps_and_equal_ratios() -> None:
    assert [LinearSchedule(4, 0)(share) for share in (0, 0.25, 1)] == [4, 3, 0]
    assert [ExponentialSchedule(16, 1)(share) for share in (0, 0.25, 1)] == pytest.approx([16, 8, 1])


@pytest.mark.parametrize("kind", [LinearSchedule, ExponentialSchedule])
def test_both_ends_are_exact_and_the_last_is_kept(kind: type[Schedule]) -> None:
    schedule = kind(0.7, 0.03, until=0.3)
    assert schedule(0) == 0.7
    assert schedule(0.3) == schedule(0.31) == schedule(1) == 0.03
    assert 0.03 < schedule(0.29) < 0.1


def test_sizes_are_whole() -> None:
    sizes = [LinearSchedule(10, 7).rounded(share / 8) for share in range(9)]
    assert sizes == [10, 10, 9, 9, 8, 8, 8, 7, 7]
    assert all(isinstance(size, int) for size in sizes)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.0, 0.0), ValueError, "start and end must be above 0, got 1.0 and 0.0"),
        ((math.inf, 1.0), ValueError, "start must be finite, got inf"),
        (("1", 1.0), TypeError, "start must be a number, got '1'"),
        ((1.0, 2.0, 0.0), ValueError, r"until must be in \(0, 1\], got 0.0"),
    ],
)
def test_bad_arguments(arguments: tuple[float, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ExponentialSchedule(*arguments)


@pytest.mark.parametrize("progress", [-0.1, 1.1, math.nan])
def test_progress_is_a_share(progress: float) -> None:
    with pytest.raises(ValueError, match="progress must be a fraction of the training"):
        LinearSchedule(1, 0)(progress)
