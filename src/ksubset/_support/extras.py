"""Optional dependencies, asked for at the moment they are needed."""

import importlib
from types import ModuleType

__all__ = ["require"]


def require(module: str, extra: str = "experiments") -> ModuleType:
    """Import a module that needs packages of an extra, only where it is used; an ImportError names what is missing.

    A run on the digits needs no downloader and a classification run no image metrics, so neither may stop the other
    at import time.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise ImportError(f"{package} is not installed; get it by: pip install 'ksubset[{extra}]'") from error
