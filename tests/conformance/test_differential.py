"""The same random requests to the Java reference and to us: every answer is the same, or listed with a reason."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.differential.exchange import SENT_AGO_MS, Answer, Comparison, Request, Side
from tests.conformance.differential.run import Run, describe
from tests.conftest import Say
from tests.support.catalogs.process import running_server
from tests.support.java.project import missing_tools
from tests.support.reference import reference_server

REQUESTS = int(os.environ.get("NUNATAK_DIFFERENTIAL_REQUESTS", "2000"))
# Fixed, so that a failure is about a change and not about luck; try others when there is time.
SEED = int(os.environ.get("NUNATAK_DIFFERENTIAL_SEED", "20261116"))
MANY = 20_000  # requests after which a listed difference that did not occur may have gone
LEAST_VALID = 0.6  # a sequence of mistakes would compare little but error messages


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(120 + REQUESTS)
def test_every_answer_is_the_references_or_differs_for_a_listed_reason(tmp_path: Path, say: Say) -> None:
    if (reason := missing_tools()) is not None:
        pytest.skip(f"NOT RUN: the comparison with the reference server ({reason})")
    allowed = {"NUNATAK_ALLOWED_LOCATIONS": f"file://{tmp_path}"}

    with (
        reference_server(tmp_path / "reference") as theirs,
        running_server(tmp_path / "ours", environment=allowed) as server,
        closing(Side(theirs.uri, "", f"file:{tmp_path}/reference-elsewhere")) as reference,
        closing(Side(server.uri, "/default", f"file:{tmp_path}/ours-elsewhere")) as ours,
    ):
        report = Run(SEED, reference, ours).run(REQUESTS)

    say(report.summary())
    for entry in report.never_seen() if report.requests >= MANY else ():
        say(f"listed, but it did not occur: {entry}")
    assert not report.unexplained, f"{report.summary()}\n{describe(report)}"
    assert report.succeeded >= LEAST_VALID * report.requests


ONE, TWO, THREE = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "123")


def differing(comparison: Comparison, one: Any, two: Any) -> list[str]:
    exchange = comparison.compare(Request("GET table", "GET", "/"), Answer(200, one), Answer(200, two))
    return [finding.path for finding in exchange.findings]


def test_the_comparison_lets_each_server_choose_its_uuids_but_not_change_them() -> None:
    comparison = Comparison()

    assert differing(comparison, {"table-uuid": ONE}, {"table-uuid": TWO}) == []
    assert differing(comparison, {"table-uuid": ONE}, {"table-uuid": TWO}) == []
    assert differing(comparison, {"table-uuid": ONE}, {"table-uuid": THREE}) == ["table-uuid"]
    assert differing(comparison, {"table-uuid": THREE}, {"table-uuid": TWO}) == ["table-uuid"]


def test_the_comparison_lets_servers_make_up_times_but_not_change_those_they_were_given() -> None:
    comparison = Comparison()
    sent = comparison.now_ms()
    made_up = sent + SENT_AGO_MS

    assert differing(comparison, {"ms": made_up}, {"ms": made_up + 5}) == []
    assert differing(comparison, {"ms": sent}, {"ms": sent}) == []
    assert differing(comparison, {"ms": sent}, {"ms": made_up}) == ["ms"]
    assert differing(comparison, {"ms": 1}, {"ms": 2}) == ["ms"]


def test_the_comparison_names_every_place_that_differs() -> None:
    one = {"metadata": {"refs": {"main": 1}, "properties": {"a": "b"}, "log": [1, 2]}, "config": {"token": "x"}}
    two = {"metadata": {"refs": {"main": 2}, "log": [2, 1]}, "config": {}}

    assert differing(Comparison(), one, two) == [
        "metadata.log[0]",
        "metadata.log[1]",
        "metadata.properties",
        "metadata.refs.main",
    ]


def test_the_comparison_reads_messages() -> None:
    comparison = Comparison()
    request = Request("GET table", "GET", "/")

    def failed(message: str) -> Answer:
        return Answer(404, {"error": {"message": message, "type": "NotFoundException", "code": 404}})

    same = comparison.compare(request, failed("No file: /one/a"), failed("No file: /two/b"))
    other = comparison.compare(request, failed("No file: /one/a"), failed("File is missing: /two/b"))

    assert same.findings == ()
    assert [finding.path for finding in other.findings] == ["answer"]
