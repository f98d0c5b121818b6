"""Schemathesis sends what the API description allows and what it forbids; the server never fails and never surprises.

Answers are held against our own document: status, content type, headers and body. What the Iceberg project's document
describes only has to be survived; NUNATAK_REST_SPEC names that file, or it lies in a `shared/spec` beside the project.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.schemas import APIOperation

from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.openapi import document, format_document
from nunatak.api.openapi_management import management_document
from tests.support.catalogs.process import RunningServer, running_server

SEED = 20261116
EXAMPLES = 12
SLOW = {"commitTransaction"}  # lists inside lists of alternatives: one example takes half a second to make
CONFORMS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SURVIVES = [not_a_server_error]

PROJECT = Path(__file__).parents[2]
UPSTREAM = Path(
    os.environ.get("NUNATAK_REST_SPEC") or PROJECT.parent / "shared" / "spec" / "rest-catalog-open-api.yaml"
)

# What is there to be found, so that not every answer is 404. The namespace's levels are joined as paths join them.
KNOWN = {"namespace": "fuzzed", "table": "t", "view": "v"}
MANAGED = {"principal": "alice", "role": "analyst", "warehouse": "default"}


@dataclass(frozen=True)
class Target:
    """One operation of one document."""

    source: str
    operation: APIOperation[Any, Any, Any, Any]
    checks: list[Any]
    examples: int

    def __str__(self) -> str:
        return f"{self.source}: {self.operation.label}"


def targets(source: str, schema: Any, checks: list[Any], examples: int) -> list[Target]:
    found = [result.ok() for result in schema.get_all_operations()]
    return [
        Target(source, o, checks, examples // 4 if o.definition.raw["operationId"] in SLOW else examples) for o in found
    ]


TARGETS = targets("ours", schemathesis.openapi.from_dict(document()), CONFORMS, EXAMPLES)
TARGETS += targets(
    "management", schemathesis.openapi.from_dict(management_document(MANAGEMENT_ROUTES)), CONFORMS, EXAMPLES // 2
)
if UPSTREAM.is_file():
    TARGETS += targets("iceberg", schemathesis.openapi.from_path(UPSTREAM), SURVIVES, EXAMPLES // 2)


@pytest.fixture(scope="module")
def fuzzed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of its own: what is sent here leaves names behind that no other test expects."""
    with running_server(tmp_path_factory.mktemp("fuzzed") / "nunatak-data") as started:
        yield started


@pytest.fixture
def known(fuzzed_server: RunningServer) -> dict[str, str]:
    """Path parameters that lead to something; an operation before this one may have dropped it."""
    config = requests.get(f"{fuzzed_server.uri}/v1/config", timeout=30).json()
    prefix = config["overrides"].get("prefix", "default")
    namespaces = f"{fuzzed_server.uri}/v1/{prefix}/namespaces"
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "default-namespace": [],
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    }
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("", {"namespace": [KNOWN["namespace"]]}),
        (f"/{KNOWN['namespace']}/tables", {"name": KNOWN["table"], "schema": schema}),
        (f"/{KNOWN['namespace']}/views", {"name": KNOWN["view"], "schema": schema, "view-version": version}),
    ]
    for path, body in wanted:
        answer = requests.post(f"{namespaces}{path}", json=body, timeout=30)
        assert answer.status_code in (200, 409), answer.text
    for path, name in [("principals", MANAGED["principal"]), ("roles", MANAGED["role"])]:
        answer = requests.post(f"{fuzzed_server.uri}/management/v1/{path}", json={"name": name}, timeout=30)
        assert answer.status_code in (200, 409), answer.text
    return {"prefix": prefix, **KNOWN, **MANAGED}


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_no_request_breaks_the_server_or_is_answered_with_a_surprise(
    target: Target, fuzzed_server: RunningServer, known: dict[str, str]
) -> None:
    print(f"seed '{SEED} {target}', {target.examples} examples")  # pytest shows it with a failure

    # A seed of its own for each target: with one for all, every Idempotency-Key would be one that was used before.
    @seed(f"{SEED} {target}")
    @settings(
        max_examples=target.examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests_to(target.operation, known))
    def send(case: Case[Any]) -> None:
        case.call_and_validate(base_url=fuzzed_server.uri, checks=target.checks, timeout=60)

    send()


def test_every_boundary_of_our_document_is_answered_as_described(
    fuzzed_server: RunningServer, known: dict[str, str], tmp_path: Path
) -> None:
    """Schemathesis lists them itself: each field left out, each limit touched and crossed, each type mistaken."""
    described, settled = tmp_path / "rest-catalog.json", tmp_path / "schemathesis.toml"
    described.write_text(format_document())
    settled.write_text("[parameters]\n" + "".join(f'"path.{name}" = "{value}"\n' for name, value in known.items()))
    checks = ",".join(check.__name__ for check in CONFORMS)

    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settled), "run", str(described)),
            *(
                "--url",
                fuzzed_server.uri,
                "--phases",
                "coverage",
                "--checks",
                checks,
                "--seed",
                str(SEED),
                "--no-color",
            ),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    print(run.stdout[-10_000:], run.stderr[-2_000:])
    assert run.returncode == 0
    counts = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
    assert counts is not None
    assert counts[1] == counts[2]
    assert int(counts[2]) > 1000, "the boundaries were not tried"


def requests_to(operation: APIOperation[Any, Any, Any, Any], known: dict[str, str]) -> st.SearchStrategy[Case[Any]]:
    """Good and bad requests, to things that are there and to things that are not, mostly in a warehouse that is."""
    there = {name: value for name, value in known.items() if f"{{{name}}}" in operation.path}
    warehouse = {name: value for name, value in there.items() if name == "prefix"}
    return st.one_of(
        operation.as_strategy(GenerationMode.POSITIVE, path_parameters=there or None),
        operation.as_strategy(GenerationMode.NEGATIVE, path_parameters=there or None),
        operation.as_strategy(GenerationMode.POSITIVE, path_parameters=warehouse or None),
        operation.as_strategy(GenerationMode.NEGATIVE),
    )
