"""The page about logging in is true: its examples run in order, against a server that is started as it says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.server import RunningServer, running_server
from tests.support.spark import configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "require-login.md"
# Marked by `login`: run in this order. The fence marked by `serve` is how the server is started.
FENCES = re.findall(r"^```(\w+) (login|serve)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
DEFAULT_URI = "http://127.0.0.1:8181"
INSTALL = "INSTALL iceberg; LOAD iceberg"  # asks the network, which tests do not


@dataclass(frozen=True)
class Reader:
    """Somebody who follows the page in a folder of their own; `printed` is what each example said."""

    folder: Path
    server: RunningServer
    printed: dict[str, str]


def load_extensions() -> str:
    """Those of the installed wheels; iceberg needs the other two."""
    found = [
        next(Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension"))
        for name in ("avro", "httpfs", "iceberg")
    ]
    return "; ".join(f"LOAD '{extension}'" for extension in found)


def run(language: str, example: str, folder: Path, uri: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    text = example.replace(DEFAULT_URI, uri).replace(INSTALL, load_extensions())
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
    environment = {**clean, "PATH": path, "NUNATAK_URI": uri}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    marks = [mark for _, mark, _ in FENCES]
    before, after = FENCES[: marks.index("serve")], FENCES[marks.index("serve") + 1 :]
    printed = {example: run(language, example, folder, "http://127.0.0.1:1") for language, _, example in before}
    (serve,) = [example for _, mark, example in FENCES if mark == "serve"]
    *settings, command, verb = serve.split()
    assert (command, verb) == ("nunatak", "serve")
    environment = dict(setting.split("=", 1) for setting in settings)
    with running_server(folder / "nunatak-data", environment=environment) as server:
        for language, _, example in after:
            if language != "properties":
                printed[example] = run(language, example, folder, server.uri)
        yield Reader(folder, server, printed)


def said(reader: Reader, word: str) -> str:
    """By the example in which this word stands."""
    (found,) = [text for example, text in reader.printed.items() if word in example]
    return found


def test_the_examples_of_the_page_run_in_order(reader: Reader) -> None:
    assert "made the administrator admin" in said(reader, "nunatak init")
    assert "role:analysts" in said(reader, "access matrix")
    assert "2 rows" in said(reader, "pyiceberg")
    assert re.search(r"2 .*second", said(reader, "duckdb"))
    listed, refused = said(reader, "curl").split("}]}")[:2]
    assert '"orders"' in listed
    assert "TABLE_DROP" in refused
    assert "denied" in said(reader, "access explain")
    assert "disabled principal ana" in said(reader, "access explain")


def test_secrets_lie_in_files_for_one_reader_and_are_printed_nowhere(reader: Reader) -> None:
    kept = [reader.folder / "etl.json", reader.folder / "ana.key", reader.folder / "nunatak-data" / "admin.json"]
    secrets = [
        json.loads(kept[0].read_text())["secret"],
        kept[1].read_text().strip(),
        json.loads(kept[2].read_text())["client-secret"],
    ]

    assert [path.stat().st_mode & 0o077 for path in kept] == [0, 0, 0]
    for text in (*reader.printed.values(), reader.server.log.read_text()):
        assert not any(secret in text for secret in secrets)


@pytest.mark.spark
def test_spark_works_with_the_properties_of_the_page(reader: Reader, spark: "SparkSession") -> None:
    (shown,) = [example for language, _, example in FENCES if language == "properties"]
    key = json.loads((reader.folder / "etl.json").read_text())
    text = shown.replace("CLIENT-ID:CLIENT-SECRET", f"{key['credential-id']}:{key['secret']}")
    text = text.replace(DEFAULT_URI, reader.server.uri).replace("catalog.lake.", "catalog.login_page.")

    configure(spark, rest_catalog("login_page", reader.server.uri))
    configure(spark, dict(line.split("=", 1) for line in text.split()))
    spark.sql("INSERT INTO login_page.sales.orders VALUES (3, 'third')")

    assert [row.id for row in spark.sql("SELECT id FROM login_page.sales.orders ORDER BY id").collect()] == [1, 2, 3]
