"""Spark settings as values: what a catalog needs, what is set already, and how both are merged. Starts nothing."""

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from nunatak_spark.compatibility import Jar, SparkRelease
from nunatak_spark.errors import CannotRun, ConfigurationConflict
from nunatak_spark.jars import FoundJar

CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
EXTENSIONS_CLASS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
JARS, PACKAGES, EXTENSIONS = "spark.jars", "spark.jars.packages", "spark.sql.extensions"
LISTS = {JARS, PACKAGES, EXTENSIONS}  # comma-separated: new items are appended, existing ones kept
CATALOG = "spark.sql.catalog."
# Spark masks settings that match this in its UI and logs. Its default does not cover credentials.
REDACTED = "(?i)secret|password|token|access[.]?key|credential"
SUBMIT_OPTIONS = {"--jars": JARS, "--packages": PACKAGES, "--master": "spark.master", "--name": "spark.app.name"}
RUNTIME_ARTIFACT = re.compile(r"(?:^|/|:)(iceberg-spark-runtime-[\d.]+_[\d.]+)[-:]")


@dataclass(frozen=True)
class CatalogConfig:
    """One catalog of a Spark session: its SQL name, the server behind it, and the login."""

    uri: str
    name: str = "lake"
    warehouse: str | None = None
    token: str | None = field(default=None, repr=False)
    credential: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name):
            raise CannotRun(f"{self.name!r} cannot name a catalog in SQL", fix="Use letters, digits and _.")
        if urlsplit(self.uri).scheme not in {"http", "https"}:
            raise CannotRun(f"{self.uri!r} is not the address of a catalog", fix="Write it like http://127.0.0.1:8181")
        if self.token and self.credential:
            raise CannotRun("A token and a credential were given", fix="Give the one to log in with.")
        if self.credential and ":" not in self.credential:
            raise CannotRun("The credential has no colon", fix="Write it as CLIENT-ID:CLIENT-SECRET.")

    def settings(self) -> dict[str, str]:
        """Returns the Spark settings of the catalog, without secrets."""
        prefix = f"{CATALOG}{self.name}"
        settings = {prefix: CATALOG_CLASS, f"{prefix}.type": "rest", f"{prefix}.uri": self.uri.rstrip("/")}
        if self.warehouse is not None:
            settings[f"{prefix}.warehouse"] = self.warehouse
        return settings

    def secrets(self) -> dict[str, str]:
        """Returns the login settings. Kept apart because the JVM's command line is readable in the process list."""
        prefix = f"{CATALOG}{self.name}"
        if self.token:
            return {f"{prefix}.token": self.token}
        if self.credential:
            root = self.uri.rstrip("/").removesuffix("/v1")
            return {f"{prefix}.credential": self.credential, f"{prefix}.oauth2-server-uri": f"{root}/v1/oauth/tokens"}
        return {}


def catalog_config(
    environment: Mapping[str, str],
    uri: str | None,
    *,
    name: str,
    warehouse: str | None,
    token: str | None,
    credential: str | None,
) -> CatalogConfig:
    """Returns the given catalog; missing values come from the environment variables that the CLI reads too."""
    if not token and not credential:
        token = environment.get("NUNATAK_TOKEN")
        credential = None if token else environment.get("NUNATAK_CREDENTIAL")
    address = uri or environment.get("NUNATAK_URI") or "http://127.0.0.1:8181"
    return CatalogConfig(address, name, warehouse, token, credential)


def quiet_settings(master: str) -> dict[str, str]:
    """Returns defaults that keep a session quiet and equal on every machine. Settings of the user win."""
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",  # timestamps mean the same here and on a cluster
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        # Local mode has no other hosts: bind to loopback, so that no host name is resolved and no port is public.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
    return settings


def jar_settings(
    present: Mapping[str, str], spark: SparkRelease, found: Sequence[FoundJar], extra: Sequence[Path]
) -> list[str]:
    """Returns the paths to add to spark.jars: ours and those that the user named, but no second Iceberg runtime.

    Raises ConfigurationConflict if a runtime for another Spark is set already.
    """
    runtimes = [match.group(1) for key in (JARS, PACKAGES) for match in _runtimes(present.get(key, ""))]
    for artifact in runtimes:
        if artifact != spark.runtime.artifact:
            raise ConfigurationConflict(
                f"{artifact} is set already, and belongs to another Spark than {spark.minor}",
                fix=f"Use {spark.runtime.coordinate}, or leave it out: it is added automatically.",
            )
    paths = [str(one.path) for one in found if not one.with_spark and not (runtimes and one.jar == spark.runtime)]
    return list(dict.fromkeys([*paths, *map(str, extra)]))


def is_resolved_by_spark(present: Mapping[str, str], jar: Jar) -> bool:
    """Returns whether spark.jars.packages names the jar in any version: then Spark's own resolver fetches it."""
    return any(f":{jar.artifact}:" in item for item in present.get(PACKAGES, "").split(","))


def _runtimes(value: str) -> list[re.Match[str]]:
    return [match for item in value.split(",") if (match := RUNTIME_ARTIFACT.search(item.strip()))]


def missing_settings(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Returns what to set so that every wanted setting is there and no existing one is lost.

    Items are appended to lists; other settings keep their value. Raises ConfigurationConflict if a catalog of the same
    name has other settings: a program must not silently get another catalog.
    """
    changes = {}
    for key, value in wanted.items():
        before = present.get(key)
        if before == value:
            continue
        if not before:
            changes[key] = value
        elif key in LISTS:
            joined = _append_items(before, value)
            changes |= {key: joined} if joined != before else {}
        elif key.startswith(CATALOG):
            raise ConfigurationConflict(
                f"{key} is already set to another value", fix="Choose another name for the catalog."
            )
    return changes


def _append_items(before: str, added: str) -> str:
    items = [item.strip() for value in (before, added) for item in value.split(",")]
    return ",".join(dict.fromkeys(item for item in items if item))


# Settings from outside the program


def existing_settings(environment: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """Returns what Spark finds when it starts: spark-defaults.conf, and the settings in PYSPARK_SUBMIT_ARGS."""
    folder = Path(environment.get("SPARK_CONF_DIR") or spark_home / "conf")
    submitted, properties_file = submit_settings(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    file = properties_file or folder / "spark-defaults.conf"
    try:
        defaults = parse_properties(file.read_text("utf-8"))
    except OSError:
        defaults = {}
    if environment.get("MASTER"):
        defaults["spark.master"] = environment["MASTER"]
    return {**defaults, **submitted}


def submit_settings(arguments: str) -> tuple[dict[str, str], Path | None]:
    """Parses spark-submit arguments; returns the settings and the properties file that they name."""
    settings: dict[str, str] = {}
    file = None
    words = [part for word in shlex.split(arguments) for part in _split_option(word)]
    for option, value in itertools.pairwise(words):
        if option in {"--conf", "-c"} and "=" in value:
            key, _, text = value.partition("=")
            settings[key.strip()] = text
        elif option in SUBMIT_OPTIONS:
            settings[SUBMIT_OPTIONS[option]] = value
        elif option == "--properties-file":
            file = Path(value)
    return settings, file


def _split_option(word: str) -> list[str]:
    """Splits `--conf=a=b` into option and value."""
    return word.split("=", 1) if re.match(r"--[a-z-]+=", word) else [word]


# Properties files such as spark-defaults.conf


def format_properties(settings: Mapping[str, str]) -> str:
    width = max(map(len, settings), default=0)
    return "".join(f"{key:<{width}} {_escape_value(value)}\n" for key, value in settings.items())


def _escape_value(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise CannotRun("spark-defaults.conf cannot contain a value with a line break", fix="Set it in the program.")
    escaped = value.replace("\\", "\\\\")
    return f"\\{escaped}" if escaped[:1] in {" ", "=", ":"} else escaped


def parse_properties(text: str) -> dict[str, str]:
    """Parses a Java properties file, as far as spark-defaults files use the format."""
    settings = {}
    for line in re.sub(r"((?<!\\)(?:\\\\)*)\\\n\s*", r"\1", text).splitlines():
        found = re.match(r"\s*(?![#!])([^\s=:]+)\s*[=:\s]\s*(.*?)\s*$", line)
        if found:
            settings[found.group(1)] = re.sub(r"\\(.)", r"\1", found.group(2))
    return settings
