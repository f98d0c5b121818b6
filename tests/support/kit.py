"""The Iceberg REST compatibility kit: the published classes, unmodified and at their strictest, against any server.

Also a command: `python -m tests.support.kit URI [METHOD ...]` prints what failed and the counts.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.support.java.project import JavaFailed, class_path

RUN_SECONDS = 1200  # a run takes about half a minute of CPU time; a starved machine gets time
PACKAGE = "org.apache.iceberg.rest"
TABLES = f"{PACKAGE}.RESTCompatibilityKitCatalogTests"
VIEWS = f"{PACKAGE}.RESTCompatibilityKitViewCatalogTests"
OPENED = f"{PACKAGE}.OpenedKitTests"  # ours: see java/kit

# Every switch the kit has, at the setting that demands most of the server.
STRICTEST = {
    "rck.local": "false",
    "rck.requires-namespace-create": "true",
    "rck.supports-serverside-retry": "true",
    "rck.supports-names-with-dot": "true",
    "rck.overrides-requested-location": "false",
    "rck.purge-test-namespaces": "true",
}

# A server that never answers, or pages for ever, fails one test instead of holding up the run.
BOUNDS = {
    "rest.client.connection-timeout-ms": "10000",
    "rest.client.socket-timeout-ms": "60000",
    "junit.jupiter.execution.timeout.default": "120 s",
}

# Each class refuses to start if it finds the kit's namespaces. Ours leaves none, so it goes first, which its name does.
ORDER = {"junit.jupiter.testclass.order.default": "org.junit.jupiter.api.ClassOrderer$ClassName"}

# The published classes have no switch for these; OpenedKitTests runs them.
ONLY_OPENED = frozenset(
    {
        "testListNestedNamespaces",
        "testDropNamespaceWithNestedNamespace",
        "testNamespaceWithSlash",
        "testTableNameWithSlash",
        "createTableInUniqueLocation",
    }
)
# No server sees these: the Java client refuses an empty namespace itself.
NEVER_RUN = frozenset(
    {
        "listNamespacesWithEmptyNamespace",
        "createAndDropEmptyNamespace",
        "namespacePropertiesOnEmptyNamespace",
        "listTablesInEmptyNamespace",
        "listViewsInEmptyNamespace",
    }
)


@dataclass(frozen=True)
class Result:
    suite: str
    test: str  # as JUnit reports it, with the parameters of a parameterised test
    outcome: str  # passed, failed or skipped
    message: str = ""

    @property
    def method(self) -> str:
        return self.test.partition("(")[0]


def run_kit(
    uri: str,
    work: Path,
    *,
    warehouse: str = "default",
    properties: Mapping[str, str] | None = None,
    only: Iterable[str] = (),
) -> list[Result]:
    """Every test's result. The server must allow the locations below file:///tmp and hold none of the kit's namespaces.

    `properties` go to the Java client; `only` names methods, for looking at one failure. Logs stay in `work`.
    """
    work.mkdir(parents=True, exist_ok=True)
    # The kit hands the properties of its JVM to the client; in a file no process list shows a token.
    arguments = work / "jvm.arguments"
    arguments.touch(mode=0o600)
    client = {**STRICTEST, **BOUNDS, **ORDER, "uri": uri, "warehouse": warehouse, **(properties or {})}
    arguments.write_text("".join(f'"-D{name}={_quoted(value)}"\n' for name, value in client.items()))
    command = [
        "java",
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        f"@{arguments}",
        "-cp",
        class_path("kit"),
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--disable-ansi-colors",
        "--details=tree",
        f"--reports-dir={work}",
        *_selectors(tuple(only)),
    ]
    _execute(command, work)
    return read_results(work / "TEST-junit-jupiter.xml")


def summary(results: Iterable[Result]) -> str:
    count = Counter(result.outcome for result in results)
    return f"kit: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"


def read_results(report: Path) -> list[Result]:
    if not report.exists():
        raise JavaFailed(f"the kit wrote no report:\n{(report.parent / 'kit.log').read_text(errors='replace')[-4000:]}")
    return [_result(case) for case in ElementTree.parse(report).getroot().iter("testcase")]


def _selectors(only: tuple[str, ...]) -> list[str]:
    if only:
        return [f"--select-class={suite}" for suite in (TABLES, VIEWS, OPENED)] + [
            "--include-methodname=.*#(" + "|".join(only) + r")\(.*\)"
        ]
    # An inherited test is found under the class that runs it, so the opened ones do not run all the others again.
    opened = [f"--select-method={OPENED}#{method}()" for method in sorted(ONLY_OPENED)]
    return [f"--select-class={TABLES}", f"--select-class={VIEWS}", *opened]


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _execute(command: list[str], work: Path) -> None:
    """JUnit ends with 1 if a test failed, which is a result; what else it may end with shows in the missing report."""
    (work / "TEST-junit-jupiter.xml").unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CATALOG_")}
    with (work / "kit.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired as late:
            process.send_signal(signal.SIGQUIT)  # a JVM answers with what every thread is doing
            raise JavaFailed(f"the kit did not end within {RUN_SECONDS} s; see {work}/kit.log") from late
        finally:
            process.kill()
            process.wait()


def _result(case: ElementTree.Element) -> Result:
    suite, test = case.get("classname", "").rpartition(".")[2], case.get("name", "")
    for tag, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            return Result(suite, test, outcome, " ".join((found.get("message") or found.text or "").split())[:400])
    return Result(suite, test, "passed")


def main() -> int:
    uri, *methods = sys.argv[1:]
    work = Path(tempfile.mkdtemp(prefix="nunatak-kit-"))
    results = run_kit(uri, work, warehouse=os.environ.get("KIT_WAREHOUSE", "default"), only=methods)
    for result in results:
        if result.outcome == "failed" or methods:
            print(f"{result.outcome.upper()} {result.suite}.{result.test}\n    {result.message}")
    print(f"{summary(results)} (log: {work}/kit.log)")
    return int(any(result.outcome == "failed" for result in results))


if __name__ == "__main__":
    sys.exit(main())
