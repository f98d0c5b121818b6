"""Project Nessie in a process of its own: a REST catalog of another make, whose tables lie in an emulated S3."""

import contextlib
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from nunatak_spark.jars import sha256_of
from nunatak_spark.java import USUAL_PLACES, java_version
from tests.support.glue import KEYS, REGION
from tests.support.java.project import one_at_a_time
from tests.support.ports import free_port

ARTIFACT = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner"
FILE = "nessie-quarkus-0.99.0-runner.jar"
SHA256 = "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417"
OLDEST_JAVA = 21  # its classes are of that version
FETCH_SECONDS, START_SECONDS = 900, 120  # 245 MB; some seconds on a quiet machine
S3 = "nessie.catalog.service.s3.default-options"


class NoNessie(Exception):
    """This machine lacks something; the text says what."""


def find_java() -> Path:
    homes = [Path(path) for place in USUAL_PLACES for path in sorted(Path("/").glob(place.lstrip("/")))]
    fitting = [home for home in homes if (java_version(home) or 0) >= OLDEST_JAVA]
    if not fitting:
        raise NoNessie(f"Nessie needs Java {OLDEST_JAVA} or newer")
    return fitting[0] / "bin" / "java"


def find_jar(folder: Path) -> Path:
    """In the cache, or fetched by Maven into it; checked by its sum."""
    jar = folder / FILE
    with one_at_a_time(jar):
        if not jar.exists():
            _fetch(folder)
    assert sha256_of(jar) == SHA256, f"{jar} is not the file that was pinned"
    return jar


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise NoNessie(f"{FILE} is not in {folder}, and there is no Maven to fetch it")
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
    fetched = subprocess.run(command, cwd=folder, capture_output=True, timeout=FETCH_SECONDS, check=False)
    if fetched.returncode:
        raise NoNessie(f"Maven could not fetch {ARTIFACT}: {fetched.stdout.decode(errors='replace')[-400:]}")


@contextlib.contextmanager
def nessie(folder: Path, jar: Path, s3: str, bucket: str) -> Iterator[str]:
    """Start it, empty, on a bucket that is there; gives the address of its REST catalog."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_port(),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.server.authentication.enabled": "false",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{bucket}/nessie",
        f"{S3}.endpoint": f"{s3}/",
        f"{S3}.path-style-access": "true",
        f"{S3}.region": REGION,
        f"{S3}.access-key": "urn:nessie-secret:quarkus:tests.s3",
        "tests.s3.name": KEYS["AWS_ACCESS_KEY_ID"],
        "tests.s3.secret": KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    lean = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    log = folder / "nessie.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(find_java()), *lean, *options, "-jar", str(jar)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "JAVA_HOME": ""},
        )
    try:
        address = f"http://127.0.0.1:{port}/iceberg"
        _await_answer(process, f"{address}/v1/config", log)
        yield address
    finally:
        process.kill()
        process.wait()


def _await_answer(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.URLError:
            time.sleep(0.3)
        else:
            return
    raise AssertionError(f"Nessie did not start:\n{log.read_text(errors='replace')[-4000:]}")
