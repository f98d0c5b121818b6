"""Prints a maintenance plan: the decision about each type of job, and its reason."""

from collections.abc import Iterable

from nunatak.cli.output import print_rows, time_of
from nunatak.client import Json


def print_decisions(decisions: Iterable[Json]) -> None:
    rows = [
        (each["type"], each["state"], each["policy-on"] or "", because(each), gains_of(each["expected"]))
        for each in decisions
    ]
    print_rows(["job", "state", "policy on", "because", "expected"], rows)


def because(decision: Json) -> str:
    until = [each["until-ms"] for each in decision["holds"] if each["until-ms"] is not None]
    reason = str(decision["because"])
    if until:
        reason += f"; not before {time_of(max(until))}"
    if decision["overridden-by"]:
        reason += f" (the table says {', '.join(decision['overridden-by'].values())})"
    return reason


def gains_of(gains: Iterable[Json]) -> str:
    """Formats the expected gains whose current value is known."""
    return ", ".join(_gain(each) for each in gains if each.get("before") is not None)


def _gain(gain: Json) -> str:
    after = gain.get("after")
    return f"{gain['of']} {gain['before']} -> {'?' if after is None else after}"
