"""A warehouse on a bad disk: in a server's process, writes and syncs of files fail, stop short or take long, by a seed.

`broken="hostile-disk"` of broken_server.py installs it; the server itself is the real one. The faults last as long as
the file named by NUNATAK_TEST_DISK exists, which holds their share of all calls; each is noted beside it. The database
is spared: SQLite makes its own calls.
"""

import errno
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nunatak.objectstore import local
from nunatak.objectstore.linux import aio_fsync, syscalls
from tests.support.syncs import replace_syncs

SWITCH_VARIABLE = "NUNATAK_TEST_DISK"
SEED_VARIABLE = "NUNATAK_TEST_DISK_SEED"
SLOW_SECONDS = 1.0

ON_OPEN = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EMFILE)
ON_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
ON_SYNC = (errno.EIO, errno.ENOSPC)


class HostileDisk:
    """What a test holds: the switch, and what the disk has done so far."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._switch = folder / "hostile-disk"
        self.environment = {SWITCH_VARIABLE: str(self._switch), SEED_VARIABLE: str(seed)}

    def on(self, share: float) -> None:
        self._switch.write_text(str(share))

    def off(self) -> None:
        self._switch.unlink(missing_ok=True)

    def faults(self) -> Counter[str]:
        noted = Path(f"{self._switch}.log")
        return Counter(noted.read_text().splitlines()) if noted.exists() else Counter()


def install() -> None:
    """In the server's process, before it starts."""
    switch, chance = os.environ[SWITCH_VARIABLE], random.Random(os.environ[SEED_VARIABLE])

    def strikes() -> bool:
        try:
            with open(switch) as file:
                return chance.random() < float(file.read() or 0)
        except FileNotFoundError:
            return False

    def note(fault: str) -> None:
        with open(f"{switch}.log", "a") as log:
            log.write(f"{fault}\n")

    def failing(name: str, honest: Callable[..., Any], numbers: tuple[int, ...]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if strikes():
                if chance.random() < 0.15:
                    note(f"slow {name}")
                    time.sleep(chance.uniform(0, SLOW_SECONDS))
                else:
                    number = chance.choice(numbers)
                    note(f"{name} {errno.errorcode[number]}")
                    raise OSError(number, os.strerror(number))
            return honest(*arguments, **options)

        return call

    honest_write = syscalls.write_all
    failing_write = failing("write", honest_write, ON_WRITE)

    class NewFile(syscalls.OpenAt2):
        open = failing("open", syscalls.OpenAt2.open, ON_OPEN)

    def write_all(file: int, data: bytes | memoryview) -> None:
        if strikes():
            note("write cut short")
            honest_write(file, data[: chance.randint(0, len(data))])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        failing_write(file, data)

    local.NEW_FILE = NewFile(os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o644, beneath=True)
    syscalls.write_all = write_all
    replace_syncs(failing("sync", aio_fsync.sync_all, ON_SYNC))
    os.fsync = failing("sync", os.fsync, ON_SYNC)
    os.open = _only_new_files(failing("open", os.open, ON_OPEN), os.open)
    os.write = failing("write", os.write, ON_WRITE)
    os.mkdir = failing("mkdir", os.mkdir, ON_OPEN)


def _only_new_files(failing: Callable[..., int], honest: Callable[..., int]) -> Callable[..., int]:
    """Only a file that is made anew fails to open: the server reads its own files on a good disk."""

    def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        return (failing if flags & os.O_EXCL else honest)(path, flags, *arguments, **options)

    return opened
