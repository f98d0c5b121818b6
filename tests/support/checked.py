"""fsck for tests: after whatever a test did, the database and the warehouse must still agree (F23)."""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nunatak.catalog.fsck import Finding, check
from nunatak.settings import Settings, load
from tests.support.catalogs.local import opened_app

AGE_MS = 86_400_000  # as the server's default: a file that was written during the test is no finding yet


def assert_sound(
    database_url_or_data: str | Path,
    *,
    warehouse: Path | None = None,
    environment: Mapping[str, str] | None = None,
    age_ms: int = AGE_MS,
) -> None:
    """Fail with what fsck finds damaged, be the server running, stopped or killed.

    Given a server's data folder, or a database's address and the `warehouse` folder of its tables; `environment` holds
    the settings the server was started with, if it had any of its own.
    """
    assert_settings_sound(settings_for(database_url_or_data, warehouse, environment), age_ms)


def assert_settings_sound(settings: Settings, age_ms: int = AGE_MS) -> None:
    """The same for the catalog that a server with these settings serves."""
    found = damage(settings, age_ms)
    lines = [f"{each.severity} {each.kind}: {each.object}: {each.text}" for each in found]
    assert not lines, "\n".join(["fsck found", *lines])


def settings_for(
    database_url_or_data: str | Path, warehouse: Path | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    given: dict[str, object] = {}
    if isinstance(database_url_or_data, str) and "://" in database_url_or_data:
        assert warehouse is not None, "say in which folder the tables lie"
        given["database_url"] = database_url_or_data
        given["data"] = warehouse.parent
    else:
        given["data"] = Path(database_url_or_data)
    if warehouse is not None:
        given["warehouse"] = f"file://{warehouse.resolve()}"
    return load(given, {"NUNATAK_CONFIG": os.devnull, **(environment or {})})


def damage(settings: Settings, age_ms: int = AGE_MS) -> list[Finding]:
    """What is worse than a notice."""
    return [finding for finding in findings(settings, age_ms) if finding.severity != "notice"]


def findings(settings: Settings, age_ms: int = AGE_MS) -> list[Finding]:
    """In a thread of its own: the test may have an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, _findings(settings, age_ms)).result()


async def _findings(settings: Settings, age_ms: int) -> list[Finding]:
    async with opened_app(settings, exclusive=False) as app:
        return [finding async for finding in check(app.catalog, age_ms)]
