"""The command `python -m tests.bench trace`: what one commit runs through, counted by the interpreter.

A commit of one snapshot to a table that this server knows already, without login, by the server's own code from the
whole request to the whole answer. Every call of a function of the package is counted once, in all threads.
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import click
import msgspec

import nunatak
from nunatak.api.app import App
from nunatak.api.http import RequestHead
from tests.api.wire import a_commit, a_table, add_snapshot, path_of, set_branch
from tests.support.catalogs.local import opened_app, settings_of

PACKAGE = Path(nunatak.__file__).parent
WARM_COMMITS = 3


@dataclass
class Trace:
    """Each function as `module:Class.name`; `to_database` leads from the request to the store, outermost first."""

    functions: set[str] = field(default_factory=set)
    to_database: list[str] = field(default_factory=list)

    @property
    def modules(self) -> set[str]:
        return {name.partition(":")[0] for name in self.functions}

    @property
    def classes(self) -> set[str]:
        return {name.rpartition(".")[0] for name in self.functions if "." in name.partition(":")[2]}

    @property
    def hand_overs(self) -> list[str]:
        """The modules on the way to the store, each where it takes over from another."""
        modules = [name.partition(":")[0] for name in self.to_database]
        return [module for module, before in zip(modules, ["", *modules], strict=False) if module != before]


class _Tracer:
    """Installed in every thread when it starts; notes calls only while `trace` is set."""

    def __init__(self) -> None:
        self.trace: Trace | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        trace = self.trace
        if trace is None or event != "call":
            return
        name = _name_of(frame)
        if name is None:
            return
        trace.functions.add(name)
        if name.endswith("Store.apply") and not trace.to_database:
            trace.to_database = list(_callers(frame))[::-1]


def _name_of(frame: FrameType) -> str | None:
    """None for what is not ours, and for parts of a function: comprehensions, generators, lambdas."""
    code = frame.f_code
    if code.co_name.startswith("<") or not code.co_filename.startswith(f"{PACKAGE}/"):
        return None
    module = code.co_filename.removeprefix(f"{PACKAGE}/").removesuffix(".py").replace("/", ".")
    return f"{module}:{code.co_qualname.replace('.<locals>.', '/')}"


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        name = _name_of(frame)
        if name is not None:
            yield name
        frame = frame.f_back


@contextmanager
def _tracing(tracer: _Tracer) -> Iterator[None]:
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def trace_commit(data: Path, database_url: str = "") -> Trace:
    """One commit to a table of a server of its own; an empty database on PostgreSQL or MariaDB may be given."""
    tracer = _Tracer()
    with _tracing(tracer):
        async with opened_app(settings_of(data, {"NUNATAK_DATABASE_URL": database_url})) as app:
            await _post(app, "/v1/namespaces", {"namespace": ["ns"]})
            created = await _post(app, path_of("ns", "tables"), a_table("t"))
            location = created["metadata"]["location"]
            for number in range(1, WARM_COMMITS + 1):
                await _append(app, location, number)
            tracer.trace = trace = Trace()
            await _append(app, location, WARM_COMMITS + 1)
            tracer.trace = None
            return trace


async def _append(app: App, location: str, number: int) -> None:
    added = add_snapshot(number, sequence=number)
    added["snapshot"]["manifest-list"] = f"{location}/metadata/snap-{number}.avro"
    await _post(app, path_of("ns", "tables", "t"), a_commit(added, set_branch(number)))


async def _post(app: App, path: str, body: Any) -> Any:
    content = json.dumps(body).encode()
    headers = {b"content-type": b"application/json", b"content-length": str(len(content)).encode()}
    answer = await app.respond(RequestHead("POST", path.encode(), b"", headers), content, ("127.0.0.1", 1))
    if answer.status != 200:
        raise click.ClickException(f"POST {path} was answered {answer.status}: {answer.body[:500]!r}")
    return json.loads(answer.body)


@click.command(help="Count the functions, modules and classes of the package that one warm commit runs through.")
@click.option("--database-url", default="", help="An empty database; by default SQLite in a temporary folder.")
@click.option("--functions", "shows_functions", is_flag=True, help="List the functions, too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def trace(database_url: str, shows_functions: bool, as_json: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="nunatak-trace-") as folder:
        found = asyncio.run(trace_commit(Path(folder), database_url))
    if as_json:
        shown = {
            "functions": sorted(found.functions),
            "modules": sorted(found.modules),
            "classes": sorted(found.classes),
            "to-database": found.to_database,
            "hand-overs": found.hand_overs,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())
        return
    click.echo(f"functions {len(found.functions)}  modules {len(found.modules)}  classes {len(found.classes)}")
    click.echo(f"modules from the request to the store: {' > '.join(found.hand_overs)}")
    click.echo(f"functions from the request to the store: {' > '.join(found.to_database)}")
    for name in sorted(found.functions) if shows_functions else ():
        click.echo(f"  {name}")
