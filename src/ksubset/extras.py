"""Optional dependencies, asked for at the moment they are needed."""

import importlib
from types import ModuleType

__all__ = ["require"]


def require(module: str) -> ModuleType:
    """Import an optional dependency.

    A run on the digits needs no downloader and a classification run no image metrics, so neither may stop the other
    at import time.

    Raises:
        ImportError: the module is not installed; the message names the extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{package} is not installed; get it by: pip install 'ksubset[experiments]'") from error
