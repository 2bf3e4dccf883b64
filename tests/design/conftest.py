"""What all tests of designs share."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """All designs here are tiny."""
