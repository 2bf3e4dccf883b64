"""What all tests of the statistics share."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """All networks here are tiny."""
