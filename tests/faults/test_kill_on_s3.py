"""kill -9 of a server whose tables lie on S3: nothing acknowledged is lost, doubled or dangling; the rest is swept."""

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from nunatak.catalog import sweep
from tests.faults.test_kill import move_on, writers
from tests.support.catalogs.local import opened_app, settings_of
from tests.support.catalogs.process import running_server
from tests.support.history import FoundTable, findings
from tests.support.object_stores import S3Emulator
from tests.support.promises import show
from tests.support.workload import Rotation, find_tables, kill_over, seeded

KILLS = int(os.environ.get("NUNATAK_TEST_S3_KILLS", "4"))
COMMITS = int(os.environ.get("NUNATAK_TEST_S3_COMMITS", "160"))
WRITERS = int(os.environ.get("NUNATAK_TEST_WRITERS", "8"))


def objects_in(store: S3Emulator, bucket: str) -> dict[str, bytes]:
    """Every object of the bucket by location."""
    with closing(store.client()) as s3:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {f"s3://{bucket}/{key}": s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def orphans(objects: dict[str, bytes], tables: list[FoundTable]) -> set[str]:
    named = {line.metadata_location for table in tables for line in table.log}
    return {location for location in objects if location.endswith(".metadata.json")} - named


def test_a_killed_server_on_s3_loses_doubles_and_dangles_nothing(
    tmp_path: Path, ministack_store: S3Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, bucket = seeded("kill-on-s3"), ministack_store.new_bucket()
    environment = ministack_store.server_environment(ministack_store.location(bucket, "lake"))
    with running_server(tmp_path / "data", environment=environment) as server:
        tables = Rotation(server.port, open_at_once=max(3, WRITERS // 2), commits=COMMITS)
        run = writers(server.port, tables, chance, WRITERS)
        with run.working():
            kill_over(server, run, chance, KILLS, COMMITS)
        last = move_on(server.port, tables.names, chance)
        objects = objects_in(ministack_store, bucket)
        found = find_tables(server.data, server.port, tables.names, objects=objects)
    sentences = findings([*run.attempts, *last.attempts], [*run.reads, *last.reads], found)
    left = orphans(objects, found)
    monkeypatch.setattr(sweep, "SLEEP_FACTOR", 0)  # nobody asks for anything meanwhile

    async def sweep_once() -> int:
        async with opened_app(settings_of(server.data, environment)) as app:
            return await sweep.sweep(app.catalog, age_ms=0)

    swept = asyncio.run(sweep_once())
    remaining = orphans(objects_in(ministack_store, bucket), found)
    show(
        "F1",
        "kill -9 of a server whose tables lie on S3 loses, doubles and dangles nothing, and its leftovers are swept",
        commits=run.applied,
        kills=KILLS,
        writers=WRITERS,
        tables=len(found),
        swept=swept,
        orphans=len(remaining),
    )
    assert sentences == []
    assert [attempt for attempt in run.attempts if (attempt.status or 0) >= 500] == []
    assert (swept, remaining) == (len(left), set())
