"""Several servers on one database: started, killed and restarted each by itself.

What goes wrong with the database itself is in postgres.py and mariadb.py; the clients are in cluster_clients.py.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.found import find_tables
from tests.support.history import FoundTable
from tests.support.workload import Run


@dataclass(frozen=True)
class Cluster:
    """Servers that share a database and a warehouse; each can be killed and restarted by itself."""

    url: str
    data: Path
    servers: tuple[RunningServer, ...]

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    def find_tables(self, names: Sequence[str]) -> list[FoundTable]:
        """As each server sees them: half of the tables by one, half by the other."""
        shares = [names[number :: len(self.ports)] for number in range(len(self.ports))]
        parts = [find_tables(self.url, port, share) for port, share in zip(self.ports, shares, strict=True)]
        return [found for part in parts for found in part]

    def kill_over(self, run: Run, chance: random.Random, *, kills: int, commits: int) -> None:
        """Spread the kills of any server at any moment over so many acknowledged commits; return when all are there."""
        for number in range(kills):
            run.await_applied(int(commits * (number + chance.random()) / kills))
            run.await_another_attempt()
            time.sleep(chance.uniform(0, 0.05))
            server = chance.choice(self.servers)
            server.kill()
            server.restart()
        run.await_applied(commits)


@contextmanager
def running_cluster(
    data: Path,
    url: str,
    *,
    count: int = 2,
    environment: Mapping[str, str] | None = None,
    broken: str | None = None,
    auth: bool = False,
) -> Iterator[Cluster]:
    """So many servers on the database at `url`; with `auth` they have one administrator."""
    chosen = {"NUNATAK_DATABASE_URL": url, **(environment or {})}
    servers: list[RunningServer] = []
    with ExitStack() as stack:
        for _ in range(count):
            key = servers[0].key if servers else ""
            started = running_server(data, environment=chosen, broken=broken, auth=auth, key=key)
            servers.append(stack.enter_context(started))
        yield Cluster(url, data, tuple(servers))
