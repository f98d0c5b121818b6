"""fsck on a catalog of many tables that a disaster went through: it finds all of the damage, and mends it (F23)."""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checked import findings, settings_for
from tests.support.homes import Home, Homes
from tests.support.many_tables import fill
from tests.support.postgres import NOT_INSTALLED, PostgresServer, find_binaries, running_postgres
from tests.support.promises import show
from tests.support.workload import seeded

MANY = int(os.environ.get("NUNATAK_TEST_FSCK_TABLES", "150"))  # a soak sets 10,000
COMMITS = 2  # to each table


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if find_binaries() is None:
        pytest.skip(NOT_INSTALLED)
    with running_postgres("fsync=off") as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A catalog of many tables."""
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    made = Homes(request.param, tmp_path, server).new("home")
    fill(settings_for(made.url or made.data, made.warehouse), MANY, COMMITS)
    return made


def damage(home: Home, chance: random.Random) -> Counter[str]:
    """Something of everything, each to a table of its own; returns what fsck has to find."""
    folders = sorted(home.warehouse.glob("*/*/metadata"))
    chance.shuffle(folders)
    for folder in folders[:3]:
        _newest(folder).unlink()
    for folder in folders[3:6]:
        file = _newest(folder)
        file.write_bytes(file.read_bytes()[: chance.randrange(500)])
    for folder in folders[6:8]:
        _oldest(folder).unlink()
    for folder in folders[8:12]:
        lost = folder / f"00001-00000000-0000-4000-8000-{chance.getrandbits(48):012x}.metadata.json"
        lost.write_bytes(_newest(folder).read_bytes())
        os.utime(lost, (0, 0))
    changed = _newest(folders[12])
    changed.write_text(json.dumps(json.loads(changed.read_text()) | {"properties": {"owner": "mallory"}}))
    names = [folder.parent.name.partition("-")[0] for folder in folders[13:17]]
    home.execute(f"DELETE FROM iceberg_tables WHERE table_name IN ('{names[0]}', '{names[1]}')")
    home.execute(f"DELETE FROM nunatak_heads WHERE table_name = '{names[2]}'")
    home.execute(f"UPDATE nunatak_heads SET table_uuid = 'another' WHERE table_name = '{names[3]}'")
    found = {"lost-file": 3, "torn-file": 3, "lost-log-file": 2, "orphan": 4, "changed-file": 1}
    return Counter(found | {"stale-record": 2, "unknown-pointer": 1, "wrong-record": 1})


def _newest(folder: Path) -> Path:
    return max(folder.iterdir())


def _oldest(folder: Path) -> Path:
    return min(folder.iterdir())


def test_a_disaster_is_found_and_mended_among_many_tables(home: Home) -> None:
    chance = seeded("fsck")
    settings = settings_for(home.url or home.data, home.warehouse)
    started = time.monotonic()
    assert findings(settings) == []
    seconds = time.monotonic() - started
    wanted = damage(home, chance)

    checked = home.nunatak("fsck", "--json")
    mended = home.nunatak("fsck", "--repair", "--json")

    assert checked.returncode == 1, checked.stderr
    assert Counter(each["kind"] for each in json.loads(checked.stdout)) == wanted
    assert mended.returncode == 1, mended.stderr  # what nobody but the operator can decide is left
    left = [each["kind"] for each in json.loads(mended.stdout) if each["done"] is None]
    assert Counter(left) == Counter({"lost-log-file": 2, "changed-file": 1})
    assert Counter(each.kind for each in findings(settings)) == Counter({"lost-log-file": 2, "changed-file": 1})
    show(
        "F23",
        "fsck finds the damage of a disaster and mends what can be",
        tables=MANY,
        tables_per_minute=round(MANY / seconds * 60),
        damaged=wanted.total(),
        missed=0,
        mended=wanted.total() - len(left),
    )
