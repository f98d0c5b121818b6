"""Checks whether Spark on this machine can work with a catalog; each problem comes with its fix. Changes nothing."""

import contextlib
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from nunatak.client import Client
from nunatak.errors import CatalogError, Forbidden, NotAuthenticated
from nunatak_spark.errors import CannotRun, JarNotFound, UnsupportedJava
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.installation import Installation, find_installation
from nunatak_spark.jars import find_jar, jar_locations

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}

State = Literal["ok", "problem", "not checked"]


@dataclass(frozen=True)
class DoctorCheck:
    """The result of one check."""

    name: str
    state: State
    found: str
    fix: str | None = None


def check_machine(
    environment: Mapping[str, str], *, jars: Sequence[str | Path] = (), bundles: tuple[str, ...] = ()
) -> list[DoctorCheck]:
    """Checks Python, pyspark, Java and the jars."""
    checks = [DoctorCheck("python", "ok", f"{platform.python_version()} at {sys.executable}")]
    try:
        installation = find_installation(environment)
    except CannotRun as error:
        return [*checks, _problem("java" if isinstance(error, UnsupportedJava) else "pyspark", error)]
    java = "a JVM runs already" if installation.java_home is None else str(installation.java_home)
    checks.append(DoctorCheck("pyspark", "ok", f"{installation.pyspark} at {installation.spark_home}"))
    checks.append(DoctorCheck("java", "ok", java))
    return [*checks, *_check_jars(installation, environment, jars, bundles)]


def _check_jars(
    installation: Installation, environment: Mapping[str, str], named: Sequence[str | Path], bundles: tuple[str, ...]
) -> list[DoctorCheck]:
    checks = []
    try:
        places = jar_locations(environment, named=named, spark_home=installation.spark_home)
        for jar in installation.spark.chosen_jars(bundles):
            found = find_jar(jar, places)
            if found is None:
                raise JarNotFound(f"{jar.file_name} is not on this machine", fix="nunatak spark fetch-jars")
            checks.append(DoctorCheck("jar", "ok", f"{found.path}, sha256 as pinned"))
    except CannotRun as error:
        checks.append(_problem("jar", error))
    return checks


def check_server(client: Client, namespace: tuple[str, ...] | None = None) -> list[DoctorCheck]:
    """Checks that the catalog answers, that the login works, and that we may create tables.

    Without a namespace the first one is tried.
    """
    try:
        config = client.load_config()
    except ConnectionError as error:
        said, _, fix = str(error).partition("; ")
        return [DoctorCheck("server", "problem", said, fix or "Look at --uri and NUNATAK_URI.")]
    except NotAuthenticated as error:
        answers = DoctorCheck("server", "ok", f"{client.uri} answers")
        return [
            answers,
            DoctorCheck("login", "problem", error.message, error.hint or "Set NUNATAK_TOKEN or …_CREDENTIAL."),
        ]
    except CatalogError as error:
        return [_catalog_problem("server", error)]
    checks = [DoctorCheck("server", "ok", f"{client.uri} answers, {len(config.get('endpoints', []))} endpoints")]
    try:
        checks.append(_check_login(client))
        checks.append(_check_writing(client, namespace))
    except CatalogError as error:
        checks.append(_catalog_problem("login" if isinstance(error, NotAuthenticated) else "write", error))
    return checks


def _check_login(client: Client) -> DoctorCheck:
    try:
        me = client.manage("GET", ("me",))
    except NotAuthenticated:
        raise
    except CatalogError as error:  # not a Nunatak server; its tables work all the same
        return DoctorCheck("login", "not checked", f"the catalog does not return the principal: {error.message}")
    return DoctorCheck("login", "ok", f"as {me.get('principal') or me.get('name') or 'anonymous'}")


def _check_writing(client: Client, namespace: tuple[str, ...] | None) -> DoctorCheck:
    """Stages a table: a staged table is never created, but the privilege is checked."""
    chosen = namespace or next(iter(client.list_namespaces()), None)
    if chosen is None:
        return DoctorCheck("write", "not checked", "there is no namespace to try", "nunatak namespace create demo")
    name = ".".join(chosen)
    try:
        staged = client.create_table(
            (*chosen, f"doctor_{uuid4().hex}"), {"schema": SCHEMA, "stage-create": True, "properties": {}}
        )
    except Forbidden as error:
        return _catalog_problem("write", error)
    location = str(staged["metadata"]["location"])
    if urlsplit(location).scheme != "file":
        return DoctorCheck("write", "ok", f"may create tables in {name}, at {location}")
    return _check_folder(name, Path(unquote(urlsplit(location).path)))


def _check_folder(namespace: str, table: Path) -> DoctorCheck:
    """Writes and removes a file, because Spark itself writes the tables of a local folder."""
    try:
        if not table.parent.is_dir():
            raise FileNotFoundError(f"there is no {table.parent} on this machine")
        table.mkdir(exist_ok=True)
        (table / "doctor").touch()
        (table / "doctor").unlink()
    except OSError as error:
        fix = "Run Spark on the machine with the warehouse, as a user with write access to it, or use an object store."
        return DoctorCheck("write", "problem", f"may create tables in {namespace}, but not write them: {error}", fix)
    finally:
        _remove_empty(table)
    return DoctorCheck("write", "ok", f"may create tables in {namespace}, and write below {table.parent}")


def _remove_empty(folder: Path) -> None:
    """Removes the folder and those in it, if they are empty; the server creates them for a staged table."""
    with contextlib.suppress(OSError):
        for inside in folder.iterdir():
            inside.rmdir()
        folder.rmdir()


def _problem(name: str, error: CannotRun) -> DoctorCheck:
    return DoctorCheck(name, "problem", error.problem, error.fix)


def _catalog_problem(name: str, error: CatalogError) -> DoctorCheck:
    return DoctorCheck(name, "problem", error.message, error.hint or "Ask the administrator of the catalog.")


def check_session(spark: Any, catalog: str) -> DoctorCheck:
    """Lists namespaces through Spark: a round trip through Spark, the jar, the login and the catalog."""
    try:
        # Spark lists namespaces on the driver anyway, so counting them there costs no more.
        count = len(spark.sql(f"SHOW NAMESPACES IN {catalog}").collect())
    except Exception as error:
        said = f"Spark cannot list namespaces: {failure_reason(error)}"
        return DoctorCheck("session", "problem", said, "See the checks above.")
    return DoctorCheck("session", "ok", f"Spark lists {count} namespaces in {catalog}")
