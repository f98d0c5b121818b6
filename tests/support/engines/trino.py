"""Trino, put together from the modules that Maven has: the server archive is not published there any more."""

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nunatak_spark.java import USUAL_PLACES, java_version
from tests.support.java.project import one_at_a_time
from tests.support.ports import free_port
from tests.support.processes import running_process
from tests.support.tool_cache import ToolMissing, maven_jars

VERSION = "483"
JAVA = 25  # its classes are of that version
QUERY_SECONDS = 300
# The archive would have a launcher, and the service file of the plugin.
_MAIN = f"""public final class TrinoMain {{
  public static void main(String[] arguments) {{ new io.trino.server.Server().start("{VERSION}"); }}
}}
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>trino</artifactId><version>1</version>
<dependencyManagement><dependencies><dependency>
<groupId>io.trino</groupId><artifactId>trino-root</artifactId><version>{version}</version><type>pom</type><scope>import</scope>
</dependency></dependencies></dependencyManagement>
<dependencies><dependency>
<groupId>io.trino</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
</dependency></dependencies></project>
"""


class QueryFailed(Exception):
    """Trino answered with an error; the message has its causes."""


def find_java_home() -> Path:
    named = [Path(value) for name, value in os.environ.items() if name.startswith("JAVA_HOME_")]  # of CI machines
    homes = [*named, *(path for place in USUAL_PLACES for path in sorted(Path("/").glob(place.lstrip("/"))))]
    fitting = [home for home in homes if (java_version(home) or 0) >= JAVA and (home / "bin" / "javac").exists()]
    if not fitting:
        raise ToolMissing(f"NOT RUN: Trino {VERSION} needs a JDK {JAVA}")
    return fitting[0]


def prepare() -> Path:
    """Returns the folder of the server, made if this is the first time: 480 MB, some minutes."""
    java_home = find_java_home()
    poms = {
        folder: _POM.format(version=VERSION, artifact=artifact)
        for folder, artifact in (("lib", "trino-main"), ("plugin/iceberg", "trino-iceberg"))
    }
    home = maven_jars("trino", VERSION, poms)
    with one_at_a_time(home / "assembled"):
        if not (home / "assembled").exists():
            _assemble(home, java_home / "bin")
            (home / "assembled").touch()
    return home


def _assemble(home: Path, tools: Path) -> None:
    (home / "TrinoMain.java").write_text(_MAIN)
    compiled = ["-cp", f"{home}/lib/*", "-d", str(home / "classes"), str(home / "TrinoMain.java")]
    subprocess.run([str(tools / "javac"), *compiled], check=True, capture_output=True)
    service = home / "service" / "META-INF" / "services"
    service.mkdir(parents=True, exist_ok=True)
    (service / "io.trino.spi.Plugin").write_text("io.trino.plugin.iceberg.IcebergPlugin\n")
    plugin = home / "plugin" / "iceberg" / "service.jar"
    packed = ["cf", str(plugin), "-C", str(home / "service"), "META-INF"]
    subprocess.run([str(tools / "jar"), *packed], check=True, capture_output=True)


@dataclass(frozen=True)
class Trino:
    uri: str

    def query(self, sql: str) -> list[list[Any]]:
        """Returns the rows; raises QueryFailed."""
        page = self._ask(f"{self.uri}/v1/statement", sql.encode())
        rows: list[list[Any]] = []
        while True:
            if "error" in page:
                raise QueryFailed(_causes(page["error"]))
            rows += page.get("data") or []
            if "nextUri" not in page:
                return rows
            page = self._ask(page["nextUri"])

    def is_ready(self) -> bool:
        try:
            return not self._ask(f"{self.uri}/v1/info")["starting"] and self.query("SELECT 1") == [[1]]
        except (OSError, ValueError, QueryFailed):
            return False

    def _ask(self, url: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(url, body, {"X-Trino-User": "test"})
        with urllib.request.urlopen(request, timeout=QUERY_SECONDS) as answer:
            return json.loads(answer.read())


def _causes(error: Mapping[str, Any]) -> str:
    found, cause = [str(error["message"])], error.get("failureInfo", {}).get("cause")
    while cause and len(found) < 5:
        found.append(cause.get("message") or cause.get("type"))
        cause = cause.get("cause")
    return " <- ".join(found)


def rest_catalog(uri: str, s3_endpoint: str, region: str = "us-east-1", **more: str) -> dict[str, str]:
    """Returns the properties of a catalog with vended credentials; Trino takes no endpoint or region from a server."""
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": uri,
        "iceberg.rest-catalog.vended-credentials-enabled": "true",
        "iceberg.rest-catalog.nested-namespace-enabled": "true",
        "fs.s3.enabled": "true",
        "s3.endpoint": s3_endpoint,
        "s3.region": region,
        "s3.path-style-access": "true",
        **more,
    }


@contextlib.contextmanager
def running_trino(folder: Path, catalogs: Mapping[str, Mapping[str, str]]) -> Iterator[Trino]:
    """Starts a server with these catalogs; about 10 s on a quiet machine, 2 GB."""
    home, port = prepare(), free_port()
    trino = Trino(f"http://127.0.0.1:{port}")
    (folder / "catalog").mkdir(parents=True, exist_ok=True)
    _write(
        folder / "config.properties",
        {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(port),
            "discovery.uri": trino.uri,
            "query.max-memory": "512MB",
            "query.max-memory-per-node": "512MB",
            "catalog.config-dir": str(folder / "catalog"),
            "plugin.dir": str(home / "plugin"),
        },
    )
    for name, properties in catalogs.items():
        _write(folder / "catalog" / f"{name}.properties", properties)
    settings = {
        "jdk.attach.allowAttachSelf": "true",
        "node.environment": "test",
        "node.id": "test",
        "node.data-dir": str(folder / "data"),
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "config": str(folder / "config.properties"),
        "log.enable-console": "true",
    }
    command = [
        str(find_java_home() / "bin" / "java"),
        *("-Xmx2G", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", "--enable-native-access=ALL-UNNAMED"),
        *("--sun-misc-unsafe-memory-access=allow", "--add-modules=jdk.incubator.vector"),
        *(f"-D{name}={value}" for name, value in settings.items()),
        *("-cp", f"{home}/classes:{home}/lib/*", "TrinoMain"),
    ]
    # A client without keys must not look for some at the cloud's own addresses.
    with running_process("trino", command, trino.is_ready, folder, {"AWS_EC2_METADATA_DISABLED": "true"}):
        yield trino


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
