"""Libraries of the cloud extras, imported on first use; the message of a missing one names the extra to install."""

import importlib
from typing import Any

from nunatak.errors import InternalError


def load_library(name: str, extra: str) -> Any:
    """Imports a module of an extra; raises InternalError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InternalError(
            f"The library {name.partition('.')[0]} is not installed", hint=f"pip install 'nunatak[{extra}]'"
        ) from error
