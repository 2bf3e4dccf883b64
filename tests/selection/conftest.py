"""What all tests of selectors share."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """All searches here are tiny."""
