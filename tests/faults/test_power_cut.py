"""The power is cut at any write or sync: what was answered 200 is there when it is back, and so are its files (F9)."""

import asyncio
import contextlib
import gzip
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from nunatak.api.app import App
from nunatak.api.http import RequestHead
from nunatak.database import sqlite
from nunatak.errors import CatalogError
from nunatak.objectstore.local import UnsyncedFiles
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.server import build_app
from nunatak.settings import SettingsError
from tests.support.catalogs.local import opened_app, settings_of
from tests.support.checked import assert_sound
from tests.support.power import Power, on_power
from tests.support.promises import show
from tests.support.workload import NAMESPACE, SCHEMA, TABLES, append_to, seeded

CUTS = int(os.environ.get("NUNATAK_TEST_CUTS", "60"))
# SQLite goes on trying for a moment when it is closed without power; nobody is left to be told.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. None:pytest.PytestUnraisableExceptionWarning")

LIVES = 15  # of one data folder; then a new one, so that none grows large
WRITERS = 4
MOST_COMMITS = 12  # of a writer in one life
CANARY_CUTS = 120  # most are found by the first few


@dataclass
class Promised:
    """What clients were told: by table, the snapshots that are there and those that are not."""

    applied: dict[str, set[int]] = field(default_factory=dict)
    refused: dict[str, set[int]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        return sum(map(len, self.applied.values()))


@dataclass
class Client:
    """Talks to an app in this process; after the cut nobody answers any more."""

    app: App
    power: Power
    promised: Promised
    chance: random.Random

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        content = b"" if body is None else json.dumps(body).encode()
        raw_path, _, query = path.partition("?")
        response = await self.app.respond(RequestHead(method, raw_path.encode(), query.encode(), {}), content)
        if self.power.is_off:
            raise CutOff
        return response.status, json.loads(response.body) if response.body else None

    async def write(self, number: int) -> None:
        for _ in range(self.chance.randint(1, MOST_COMMITS)):
            what = self.chance.random()
            if what < 0.1 or not self.promised.applied:
                # A packed file goes to the disk by itself, others share their way.
                await self.create(self.chance.choice(["none", "none", "none", "gzip"]))
            else:
                await self.append(f"w{number}")

    async def create(self, codec: str) -> None:
        name = f"t{self.chance.getrandbits(40)}"
        properties = {"write.metadata.compression-codec": codec}
        status, loaded = await self.ask("POST", TABLES, {"name": name, "schema": SCHEMA, "properties": properties})
        assert status == 200, loaded
        self.promised.applied[name] = set()
        self.promised.files.add(loaded["metadata-location"])

    async def append(self, intent: str) -> None:
        name = self.chance.choice(sorted(self.promised.applied))
        status, loaded = await self.ask("GET", f"{TABLES}/{name}")
        assert status == 200, loaded
        snapshot_id = self.chance.getrandbits(62) + 1
        change = append_to(name, loaded["metadata"], snapshot_id, intent)
        status, answer = await self.ask("POST", f"{TABLES}/{name}", change)
        if status == 200:
            self.promised.applied[name].add(snapshot_id)
            self.promised.files.add(answer["metadata-location"])
        else:
            assert status == 409, answer
            self.promised.refused.setdefault(name, set()).add(snapshot_id)


class CutOff(Exception):
    """No answer comes any more."""


async def live(data: Path, power: Power, promised: Promised, chance: random.Random) -> list[str]:
    """Start on what is there, look whether every promise is kept, and write until the power goes."""
    try:
        environment = {"NUNATAK_LINUX_SYSCALLS": chance.choice(["true", "false"])}
        app = await build_app(settings_of(data, environment))  # not closed in order: the power goes
    except (apsw.Error, SettingsError, CatalogError, OSError):
        assert power.is_off  # it went while the server started
        return []
    try:
        client = Client(app, power, promised, chance)
        broken = await broken_promises(client)
        if broken:
            return broken
        writers = [Client(app, power, promised, random.Random(chance.random())) for _ in range(WRITERS)]
        await asyncio.gather(*(each.write(number) for number, each in enumerate(writers)))
        return []
    except CutOff:
        return []
    finally:
        power.cut()
        for end in (app.catalog.store.close, app.catalog.objects.close):
            with contextlib.suppress(apsw.Error, CatalogError, OSError):
                await end()


async def look(data: Path, promised: Promised) -> list[str]:
    """Start on what is there with the power on, and stop in order."""
    async with opened_app(settings_of(data)) as app:
        return await broken_promises(Client(app, Power(data, random.Random(0), 0), promised, random.Random(0)))


async def broken_promises(client: Client) -> list[str]:
    """What was answered and is not so, one sentence each."""
    broken = []
    status, answer = await client.ask("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
    assert status in (200, 409), answer
    promised = client.promised
    for name, snapshots in promised.applied.items():
        status, loaded = await client.ask("GET", f"{TABLES}/{name}?snapshots=all")
        if status != 200:
            broken.append(f"lost: {name} is answered {status} {loaded}")
            continue
        held = {snapshot["snapshot-id"] for snapshot in loaded["metadata"]["snapshots"]}
        if snapshots - held:
            broken.append(f"lost: {name} misses {len(snapshots - held)} of {len(snapshots)} snapshots")
        if promised.refused.get(name, set()) & held:
            broken.append(f"wrong answer: {name} holds what was refused")
    for location in promised.files:
        file = Path(location.removeprefix("file://"))
        if not _is_whole(file):
            broken.append(f"dangling: {file.name} is not whole")
    return broken


def _is_whole(file: Path) -> bool:
    try:
        content = file.read_bytes()
        json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (ValueError, OSError, EOFError):
        return False
    return True


def cut_again_and_again(
    folder: Path, chance: random.Random, cuts: int, *, until_found: bool = False
) -> tuple[int, int, list[str]]:
    """How many cuts and how many promises there were, and which of these were broken."""
    made, promises = 0, 0
    broken: list[str] = []
    while made < cuts and not (until_found and broken):
        data = folder / f"data-{made}"
        data.mkdir()
        promised = Promised()
        for _ in range(min(LIVES, cuts - made)):
            at = chance.randint(1, 12) if chance.random() < 0.15 else chance.randint(20, 500)
            power = Power(data, random.Random(chance.random()), at)
            with on_power(power):
                broken += asyncio.run(live(data, power, promised, chance))
            power.restore()
            made += 1
            broken += _unsound(data)
            if until_found and broken:
                break
        promises += promised.count
        broken += asyncio.run(look(data, promised))
        if not broken:
            assert_sound(data)
        shutil.rmtree(data)
    return made, promises, broken


def _unsound(data: Path) -> list[str]:
    """What SQLite itself says of the file, without anything of ours; looked at in a copy, so that nothing is mended."""
    copy = data.parent / "copy"
    copy.mkdir()
    try:
        for name in ("nunatak.db", "nunatak.db-wal"):
            if (data / name).exists():
                shutil.copy(data / name, copy / name)
        with contextlib.closing(apsw.Connection(str(copy / "nunatak.db"))) as connection:
            said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        return [] if said == ["ok"] else [f"corrupt: {said}"]
    except apsw.Error as error:
        return [f"corrupt: {error}"]
    finally:
        shutil.rmtree(copy)


@pytest.mark.timeout(max(600, CUTS * 2))
def test_a_power_cut_takes_nothing_that_was_answered(tmp_path: Path) -> None:
    chance = seeded("power")
    cuts, promises, broken = cut_again_and_again(tmp_path, chance, CUTS)
    assert broken == []
    assert promises > cuts  # else there was little to lose
    show("F9", "a power cut takes nothing that was answered", cuts=cuts, commits=promises, lost=0, corrupt=0)


# Canaries


def _without_waiting_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    honest = sqlite._connect

    def connect(path: Path) -> apsw.Connection:
        connection = honest(path)
        connection.execute("PRAGMA synchronous=NORMAL").fetchall()
        return connection

    patch.setattr(sqlite, "_connect", connect)


def _with_syncs_that_do_nothing(patch: pytest.MonkeyPatch) -> None:
    async def close(self: LocalStorage, files: Sequence[UnsyncedFiles]) -> None:
        for each in files:
            each.close()

    patch.setattr(LocalStorage, "_sync", close)


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (_without_waiting_for_the_disk, "lost: "),
        (_with_syncs_that_do_nothing, "dangling: "),
    ],
    ids=["synchronous=NORMAL", "files not synced"],
)
def test_a_server_that_trusts_the_disk_too_early_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None], found: str
) -> None:
    chance = seeded(f"power-canary-{mistake.__name__}")
    mistake(monkeypatch)
    cuts, promises, broken = cut_again_and_again(tmp_path, chance, CANARY_CUTS, until_found=True)
    print(f"found after {cuts} cuts and {promises} commits: {broken[:3]}")
    assert [sentence for sentence in broken if sentence.startswith(found)]
