"""Validates the settings as a whole and derives values from them, before anything is opened or written."""

import importlib.util
import json
import logging
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nunatak.access.setup import check_access
from nunatak.addresses import is_loopback
from nunatak.api.route import TOP_WORDS
from nunatak.api.router import first_words
from nunatak.api.transport.tls import tls_context
from nunatak.catalog.catalog import WarehousePlace
from nunatak.catalog.warehouses import check_warehouse_name
from nunatak.database_url import MEMORY_URL
from nunatak.errors import CatalogError
from nunatak.objectstore.cloud_stores import require_scheme
from nunatak.objectstore.configured import configured_secrets, configured_storage
from nunatak.objectstore.location import Location, parse_location
from nunatak.settings import Settings, SettingsError, files_with_secrets, without_password

log = logging.getLogger(__name__)

DATABASE_FILE = "nunatak.db"


def check(settings: Settings) -> ssl.SSLContext | None:
    """Checks the settings; raises SettingsError. Returns the TLS context, or None without TLS.

    Whether the database is reachable and the address free is not checked: nothing is opened or written.
    """
    if settings.workers != 1 and on_sqlite(settings):
        raise SettingsError(
            f"workers is {settings.workers}, but SQLite supports one server process: leave workers at 1, or set "
            "database_url to postgresql://… to share the catalog among several"
        )
    if not is_loopback(settings.host):
        _refuse_strangers(settings)
    read_places(settings)
    _check_database(settings)
    _check_paths_and_properties(settings)
    _refuse_readable_by_all(settings)
    check_access(settings)
    return tls_context(settings)


def _check_paths_and_properties(settings: Settings) -> None:
    """Raises SettingsError for a base path that hides a route, or a secret in the configuration sent to clients."""
    for path in settings.base_paths:
        if path.split("/")[1] in first_words():
            raise SettingsError(f"base_paths names {path}, which begins as a path of the server's own")
    password = unquote(urlsplit(settings.database_url).password or "")
    told = (settings.opa_token.reveal(), settings.s3_secret_access_key.reveal(), password)
    secrets = [text for text in (*told, *configured_secrets(settings)) if text]
    for name, value in (*settings.config_defaults, *settings.config_overrides):
        if any(secret in value for secret in secrets):
            raise SettingsError(f"config_defaults or config_overrides would tell clients a secret in {name}")


def _refuse_readable_by_all(settings: Settings) -> None:
    """Raises SettingsError if all users can read the database, the TLS key, or a settings file with a secret."""
    found = [("the TLS key", settings.tls_key or settings.tls_certificate)] if settings.tls_certificate else []
    if on_sqlite(settings) and not in_memory(settings):
        database = sqlite_path(settings)
        found += [("the database", f"{database}{ending}") for ending in ("", "-wal")]
    found += [("the settings file, which holds a secret,", path) for path in files_with_secrets(settings)]
    for what, path in found:
        if is_readable_by_all(Path(path)):
            raise SettingsError(f"{what} {path} can be read by every user of this machine: chmod 600 {path}")


def is_readable_by_all(path: Path) -> bool:
    """Whether users who are neither owner nor in the group can read the file and enter every folder above it."""
    try:
        resolved = path.resolve()
        modes = [each.stat().st_mode for each in resolved.parents]
        return bool(resolved.stat().st_mode & stat.S_IROTH) and all(mode & stat.S_IXOTH for mode in modes)
    except OSError:  # the file does not exist yet, or this user may not stat it
        return False


def _check_database(settings: Settings) -> None:
    """Raises SettingsError for a missing driver, or a path where no SQLite file can be created."""
    if on_mariadb(settings) or on_postgres(settings):
        driver, extra = ("pymysql", "mariadb") if on_mariadb(settings) else ("asyncpg", "postgres")
        if importlib.util.find_spec(driver) is None:
            raise SettingsError(f"database_url cannot be used: it needs a driver: pip install 'nunatak[{extra}]'")
        return
    if in_memory(settings):
        _check_memory(settings)
        return
    path = sqlite_path(settings)
    there = next(each for each in path.absolute().parents if each.exists())
    if not there.is_dir():
        raise SettingsError(f"the database {path} cannot be made: {there} is not a folder")
    if path.is_dir():
        raise SettingsError(f"the database {path} is a folder")


def _check_memory(settings: Settings) -> None:
    """Refuses an in-memory catalog in the data folder of one on disk, whose files it does not know, or with logins."""
    if (settings.data / DATABASE_FILE).exists() and settings.origins["data"] != "default":
        raise SettingsError(f"the folder {settings.data} holds a catalog: leave data out, or name an empty folder")
    if "embedded" in settings.auth:
        raise SettingsError("a catalog in memory has no administrator, so no caller could log in: set auth to none")


def _refuse_strangers(settings: Settings) -> None:
    """Refuses a non-loopback address without authentication; warns if it has no TLS."""
    if settings.auth == ("none",):
        raise SettingsError(
            f"host is {settings.host}, which other machines can reach, but auth is none: every caller could "
            "change the catalog. Run `nunatak init` and set auth to embedded (or oidc, proxy, certificate), "
            "or listen on 127.0.0.1"
        )
    if not settings.tls_certificate:
        log.warning("host is %s, without TLS: put a TLS proxy in front, or set tls_certificate", settings.host)


def in_memory(settings: Settings) -> bool:
    """Whether the catalog is in memory only, for tests."""
    return settings.database_url == MEMORY_URL


def on_sqlite(settings: Settings) -> bool:
    return not settings.database_url or settings.database_url.startswith("sqlite:")


def on_postgres(settings: Settings) -> bool:
    return settings.database_url.startswith(("postgresql://", "postgres://"))


def on_mariadb(settings: Settings) -> bool:
    return settings.database_url.startswith(("mariadb://", "mysql://"))


def catalog_name(settings: Settings) -> str:
    """Identifies the catalog by its database URL without password, as data folders and databases need not match 1:1."""
    return (
        f"sqlite:///{sqlite_path(settings).resolve()}"
        if on_sqlite(settings) and not in_memory(settings)
        else without_password(settings.database_url)
    )


def require_database(settings: Settings) -> None:
    """Raises SettingsError if the SQLite file is missing: a mistyped folder must not become an empty catalog."""
    if on_sqlite(settings) and not sqlite_path(settings).is_file():
        raise SettingsError(f"there is no database at {sqlite_path(settings)}; `nunatak serve` would make one")


def sqlite_path(settings: Settings) -> Path:
    url = settings.database_url
    if not url:
        return settings.data / DATABASE_FILE
    if in_memory(settings):
        raise SettingsError("database_url names a catalog in the memory of its server, which only that server can read")
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    raise SettingsError(
        f"database_url {url.partition('://')[0]}://… is not supported here; write sqlite:///path, "
        "postgresql://user@host/name or mariadb://user@host/name, or leave it empty"
    )


def read_places(
    settings: Settings,
) -> tuple[dict[str, WarehousePlace], tuple[Location, ...], Path | None]:
    """Returns the configured warehouses, the roots where more may be created, and the telemetry spool folder."""
    return _warehouses(settings), _roots(settings), settings.spool_folder()


def _warehouses(settings: Settings) -> dict[str, WarehousePlace]:
    places: dict[str, WarehousePlace] = {}
    for warehouse in settings.all_warehouses():
        if warehouse.name in places:
            raise SettingsError(f"two warehouses are named {warehouse.name}")
        try:
            check_warehouse_name(warehouse.name, TOP_WORDS)
            allowed = tuple(parse_location(text) for text in (warehouse.location, *warehouse.allowed_locations))
            profile, secret = configured_storage(settings, warehouse.name, allowed[0])
            for place in allowed:
                require_scheme(profile, place)
        except CatalogError as error:
            raise SettingsError(f"warehouse {warehouse.name}: {error.message}") from error
        _refuse_shared(warehouse.name, allowed, places)
        places[warehouse.name] = WarehousePlace(
            warehouse.name,
            warehouse.location,
            allowed,
            plain=warehouse.name in settings.plain_locations,
            profile=profile,
            secret=secret,
        )
    _refuse_unused_storage(settings, places)
    return places


def _roots(settings: Settings) -> tuple[Location, ...]:
    try:
        return tuple(parse_location(text) for text in settings.all_warehouse_roots())
    except CatalogError as error:
        raise SettingsError(f"warehouse_roots: {error.message}") from error


def _refuse_unused_storage(settings: Settings, places: Mapping[str, WarehousePlace]) -> None:
    """Raises SettingsError for a table of `storage` or `storage_secrets` that belongs to no warehouse."""
    secrets = json.loads(settings.storage_secrets.reveal() or "{}")
    for name in (*dict(settings.storage), *secrets):
        if name not in places:
            known = ", ".join(places)
            raise SettingsError(f"storage or storage_secrets names the warehouse {name}; configured are {known}")


def _refuse_shared(name: str, allowed: tuple[Location, ...], places: Mapping[str, WarehousePlace]) -> None:
    for other in places.values():
        mine, theirs = allowed[0], other.allowed[0]
        if mine.contains(theirs) or theirs.contains(mine):
            raise SettingsError(f"the warehouses {name} and {other.name} overlap")
