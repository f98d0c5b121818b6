"""The page about Spark: its Python runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import ROOT, RunningServer
from tests.support.spark import Installation

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "how-to" / "use-spark.md"
EXAMPLE = re.compile(r"^```python spark\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_run_in_order(
    environment: None, installation: Installation, server: RunningServer, tmp_path: Path
) -> None:
    examples = EXAMPLE.findall(PAGE.read_text("utf-8"))
    assert len(examples) == 2
    script = "\n".join(examples).replace("http://127.0.0.1:8181", server.uri)

    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "NUNATAK_SPARK_JARS": str(installation.jars[0])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "|  1|Oslo|" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "values differ in: city"
