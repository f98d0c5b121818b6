"""Imports the client libraries of object stores, which are extras: the core serves local files without them."""

import importlib
from typing import Any


class MissingExtra(Exception):
    """A package is not installed; the message says which extra brings it."""


def import_extra(module: str, extra: str) -> Any:
    """Returns a module of an optional package; raises MissingExtra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingExtra(f"The package {package} is missing: pip install 'nunatak[{extra}]'") from error
