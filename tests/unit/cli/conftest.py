"""Commands run in this process against a real server; what they print and how they end is what a shell would see."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from nunatak.cli.main import root
from tests.support.catalogs.process import RunningServer


@dataclass(frozen=True)
class Outcome:
    """What one command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


def run_command(*arguments: str, **environment: str) -> Outcome:
    result = CliRunner().invoke(root, arguments, prog_name="nunatak", env=environment, catch_exceptions=False)
    return Outcome(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def run(shared_server: RunningServer) -> Run:
    """Run a command against the shared server; it must work unless the test says which code it ends with."""

    def run(*arguments: str, code: int = 0) -> Outcome:
        outcome = run_command(*arguments, NUNATAK_URI=shared_server.uri)
        assert outcome.code == code, outcome
        return outcome

    return run


@pytest.fixture
def namespace(run: Run) -> str:
    """A namespace of the test's own."""
    name = f"cli_{uuid4().hex[:12]}"
    run("namespace", "create", name)
    return name
