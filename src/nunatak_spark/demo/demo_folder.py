"""The folder of a demo: used by one demo at a time, and emptied only if an earlier demo created it."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from nunatak_spark.errors import ConfigurationConflict

MARK = ".nunatak-demo"  # marks a folder whose contents may be deleted


@contextlib.contextmanager
def claim_folder(folder: Path) -> Iterator[Path]:
    """Locks and empties the folder; raises ConfigurationConflict if it is in use or not a demo's."""
    mark = folder / MARK
    if folder.exists() and not mark.exists() and any(folder.iterdir()):
        raise ConfigurationConflict(
            f"{folder} exists and was not created by a demo", fix="Name another one with --folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with mark.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationConflict(
                f"A demo runs in {folder} already", fix="End it, or name another one with --folder."
            ) from error
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != mark:
                path.unlink()
        yield folder
