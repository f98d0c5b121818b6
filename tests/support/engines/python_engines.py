"""ClickHouse (chdb), Polars and Daft: Python libraries that do not fit beside those of the other tests."""

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.support.tool_cache import python_environment

PACKAGES = ("chdb==4.4.0", "polars==2.1.0", "daft==0.7.26", "pyiceberg[pyarrow]==0.12.0")
RUN_SECONDS = 300


class EngineFailed(Exception):
    """The program failed; the message ends with its output."""


def run_program(program: str, arguments: Mapping[str, Any]) -> Any:
    """Runs a Python program in the environment of the engines; it finds `arguments` and leaves `result`, both JSON.

    It has no keys, and does not look for some at the cloud's own addresses.
    """
    head = "import json, sys\narguments = json.load(sys.stdin)\nresult = None\n"
    tail = "\nprint('result', json.dumps(result, default=str))\n"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ended = subprocess.run(
        [str(python_environment("engines", PACKAGES)), "-c", f"{head}{program}{tail}"],
        input=json.dumps(arguments),
        env={**inherited, "AWS_EC2_METADATA_DISABLED": "true", "DAFT_ANALYTICS_ENABLED": "0", "DO_NOT_TRACK": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    results = [line.removeprefix("result ") for line in ended.stdout.splitlines() if line.startswith("result ")]
    if ended.returncode or not results:
        raise EngineFailed(ended.stdout[-2000:] + ended.stderr[-4000:])
    return json.loads(results[-1])
