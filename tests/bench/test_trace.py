"""What one commit runs through stays few; `python -m tests.bench trace` shows it."""

import asyncio
from pathlib import Path

from tests.bench.trace import Trace, trace_commit

# Measured, with a little room for a helper; a new layer or a second pass does not fit in.
MOST_FUNCTIONS, MOST_MODULES, MOST_CLASSES = 196, 44, 36


def test_a_warm_commit_goes_straight_from_its_handler_to_the_database(tmp_path: Path) -> None:
    trace = asyncio.run(trace_commit(tmp_path))

    assert trace.hand_overs == [
        "api.app",
        "api.route",  # encodes the value that the handler returns
        "api.tables",
        "catalog.commits",
        "catalog.publish",
        "catalog.write",
        "database.sqlite",
    ]
    assert "catalog.publish:publish" in trace.functions
    assert len(trace.functions) <= MOST_FUNCTIONS
    assert len(trace.modules) <= MOST_MODULES
    assert len(trace.classes) <= MOST_CLASSES


def test_a_trace_counts_a_function_once_and_knows_its_class() -> None:
    trace = Trace({"a.b:f", "a.b:C.g", "a.b:C.h", "c:f"}, ["a.b:f", "a.b:C.g", "c:f", "a.b:C.h"])

    assert (trace.modules, trace.classes) == ({"a.b", "c"}, {"a.b:C"})
    assert trace.hand_overs == ["a.b", "c", "a.b"]
