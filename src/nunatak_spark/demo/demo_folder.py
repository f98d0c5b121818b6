"""The folder that a demo leaves behind: taken by one at a time, and emptied only if an earlier demo made it."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from nunatak_spark.errors import ConfigurationConflict

MARK = ".nunatak-demo"  # whoever finds it knows that everything beside it may go


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """The folder, empty but for the mark, and nobody else's while the block runs."""
    mark = folder / MARK
    if folder.exists() and not mark.exists() and any(folder.iterdir()):
        raise ConfigurationConflict(
            f"{folder} is there already, and no demo made it", fix="Name another one with --folder."
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
