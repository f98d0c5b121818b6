"""Imports optional Python packages that only some migration steps need; raises CannotRun with the pip command."""

import importlib
from typing import Any

from nunatak_spark.errors import CannotRun


def load_module(name: str, needed_for: str, *, extra: str = "migration", fix: str = "") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise CannotRun(
            f"{package} is not installed, and is needed for {needed_for}", fix=fix or f"pip install 'nunatak[{extra}]'"
        ) from error
