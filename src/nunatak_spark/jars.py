"""Finds jars: named by the user, in Spark's folder, in the Maven repository, in our cache; downloads the rest.

Every jar is checked against its pinned sha256.
"""

import base64
import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from nunatak_spark.compatibility import Jar
from nunatak_spark.errors import ConfigurationConflict, JarChecksumMismatch, JarNotFound

FETCH_SECONDS = 600  # 70 MB over a slow connection
SILENCE_SECONDS = 60  # read timeout: a repository that sends nothing for a minute is not going to answer
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class JarLocations:
    """Where this machine keeps jars, and how it downloads more."""

    cache: Path
    named: tuple[Path, ...] = ()
    spark_jars: Path | None = None
    maven_repository: Path | None = None
    maven: str | None = None
    maven_url: str | None = None


def jar_locations(
    environment: Mapping[str, str], *, named: Sequence[str | Path] = (), spark_home: Path | None = None
) -> JarLocations:
    """Returns the jar locations of this user, from the environment."""
    home = Path(environment.get("HOME") or Path.home())
    given = [*map(str, named), *environment.get("NUNATAK_SPARK_JARS", "").replace(os.pathsep, ",").split(",")]
    return JarLocations(
        cache=Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "nunatak" / "jars",
        named=tuple(Path(path) for path in given if path),
        spark_jars=None if spark_home is None else spark_home / "jars",
        maven_repository=home / ".m2" / "repository",
        maven=shutil.which("mvn", path=environment.get("PATH", "")),
        maven_url=environment.get("NUNATAK_MAVEN_URL") or None,
    )


@dataclass(frozen=True)
class FoundJar:
    """A jar whose checksum was verified. `with_spark`: it lies in Spark's folder, so it is on every class path."""

    jar: Jar
    path: Path
    with_spark: bool = False


def find_jar(jar: Jar, places: JarLocations) -> FoundJar | None:
    """Returns the jar if it is on this machine; downloads nothing."""
    with_spark = _find_with_spark(jar, places)  # first: it raises if Spark's folder has another version
    named = _find_named(jar, places)
    if named is not None:
        return FoundJar(jar, named)
    if with_spark is not None:
        return FoundJar(jar, with_spark, with_spark=True)
    kept = [places.cache / jar.file_name]
    if places.maven_repository is not None:
        kept.insert(0, places.maven_repository / jar.repository_path)
    return next((FoundJar(jar, path) for path in kept if path.is_file() and sha256_of(path) == jar.sha256), None)


def load_jar(jar: Jar, places: JarLocations) -> FoundJar:
    """Returns the jar; downloads it into the cache if this machine has none."""
    return find_jar(jar, places) or FoundJar(jar, _download(jar, places))


def verify_checksum(path: Path, jar: Jar) -> Path:
    """Returns the path; raises JarChecksumMismatch if the file does not have the pinned sha256."""
    digest = sha256_of(path)
    if digest != jar.sha256:
        raise JarChecksumMismatch(
            f"{path} is not the {jar.coordinate} that was pinned: its sha256 is {digest}, not {jar.sha256}",
            fix="Remove the file; `nunatak spark fetch-jars` gets the right one.",
        )
    return path


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _find_with_spark(jar: Jar, places: JarLocations) -> Path | None:
    """Looks in Spark's jars folder, which is on every class path of this Spark."""
    if places.spark_jars is None:
        return None
    for path in sorted(places.spark_jars.glob(f"{_file_name_prefix(jar)}*.jar")):
        if path.name != jar.file_name:
            raise ConfigurationConflict(
                f"{path} is on Spark's class path and conflicts with {jar.file_name}",
                fix=f"Remove {path.name}, or put {jar.file_name} in its place.",
            )
        return verify_checksum(path, jar)
    return None


def _find_named(jar: Jar, places: JarLocations) -> Path | None:
    """Looks among the paths that the user gave; a folder stands for the jars in it."""
    for path in places.named:
        if not path.exists():
            raise JarNotFound(
                f"There is no {path}", fix="Correct the path, or leave it out to have the jar looked for."
            )
        file = path / jar.file_name if path.is_dir() else path
        if file.name.startswith(_file_name_prefix(jar)) and file.is_file():
            return verify_checksum(file, jar)
    return None


def _file_name_prefix(jar: Jar) -> str:
    """Returns the common prefix of the file names of all versions; for the Iceberg runtime also of all Sparks."""
    return jar.artifact.partition("-runtime-")[0] + "-runtime-" if "-runtime-" in jar.artifact else f"{jar.artifact}-"


# Downloading


def _download(jar: Jar, places: JarLocations) -> Path:
    if places.maven_url is None and places.maven is None:
        raise JarNotFound(
            f"{jar.file_name} is not on this machine, and it needs Maven or NUNATAK_MAVEN_URL to be downloaded",
            fix=f"Install Maven, or set NUNATAK_MAVEN_URL to a repository, or put the file (sha256 {jar.sha256}) "
            f"into {places.cache}.",
        )
    places.cache.mkdir(parents=True, exist_ok=True)
    # Download into a temporary folder inside the cache: a partial file is never used, and the final rename is atomic.
    with tempfile.TemporaryDirectory(prefix="incoming-", dir=places.cache) as incoming:
        file = Path(incoming) / jar.file_name
        if places.maven_url is not None:
            _download_from(places.maven_url, jar, file)
        elif places.maven is not None:
            _copy_with_maven(places.maven, jar, file.parent)
        return verify_checksum(file, jar).replace(places.cache / jar.file_name)


def _copy_with_maven(maven: str, jar: Jar, folder: Path) -> None:
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={jar.coordinate}", f"-DoutputDirectory={folder}"]
    fix = "Look at Maven's settings.xml, or set NUNATAK_MAVEN_URL to a repository that has it."
    try:
        # Run in a folder without a pom.xml, so that no project configuration applies.
        copied = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarNotFound(f"mvn could not get {jar.coordinate}: {error}", fix=fix) from error
    if copied.returncode or not (folder / jar.file_name).is_file():
        said = (copied.stdout + copied.stderr).strip()[-400:]
        raise JarNotFound(f"mvn could not get {jar.coordinate}: {said}", fix=fix)


def _download_from(base: str, jar: Jar, file: Path) -> None:
    url, headers = _split_userinfo(f"{base.rstrip('/')}/{quote(jar.repository_path)}")
    if urlsplit(url).scheme not in {"http", "https"}:
        raise JarNotFound(
            f"NUNATAK_MAVEN_URL is not an address: {url}", fix="Write it like https://repository.example/maven."
        )
    try:
        with _open_url(url, headers) as answer, file.open("wb") as out:
            shutil.copyfileobj(answer, out, CHUNK_BYTES)
    except (OSError, ValueError) as error:  # includes urllib's errors
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise JarNotFound(
            f"{url} could not be downloaded: {error}", fix="Look at NUNATAK_MAVEN_URL, or unset it to use Maven."
        ) from error


@contextlib.contextmanager
def _open_url(url: str, headers: Mapping[str, str]) -> Iterator[BinaryIO]:
    request = urllib.request.Request(url)
    for name, value in headers.items():
        request.add_unredirected_header(name, value)  # never send the password to a redirect target
    with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer:
        yield answer


def _split_userinfo(url: str) -> tuple[str, dict[str, str]]:
    """Returns the URL without user and password, safe to print, and the Authorization header made of them."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
