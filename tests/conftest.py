"""What all tests share: the device, strictness of statistical tests, the folder of real data, and Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("default", max_examples=500, deadline=None, derandomize=True)
settings.register_profile("fuzz", max_examples=10_000, deadline=None, print_blob=True)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device of the numerics, distribution and estimator tests")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(autouse=True)
def _fresh_state() -> None:
    torch.manual_seed(20240722)
    # torch.compile switches the validation of all distributions off, for the rest of the process.
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("KSUBSET_DATA")
    if not folder:
        pytest.skip("KSUBSET_DATA names no folder of data sets, and this test needs a real one")
    return Path(folder)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny steps on several threads crawl as soon as another process wants one of the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is an exception, as in a terminal: a suite in the background (``nohup``) inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
