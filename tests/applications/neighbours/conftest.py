"""What all tests of neighbours share."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """All trainings here are tiny."""
