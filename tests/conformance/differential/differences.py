"""Where our answers differ from the reference's on purpose: each entry says why, and is reported if it never occurs."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.conformance.differential.exchange import Exchange, Finding


@dataclass(frozen=True)
class Difference:
    reason: str
    explains: Callable[[Exchange, Finding], bool]


def answer(reference: str, ours: str, *, reason: str, operation: str = "") -> Difference:
    """Status, type and message differ; all given as regular expressions."""
    return _texts("answer", operation, reference, ours, reason)


def message(reference: str, ours: str, *, reason: str, operation: str = "") -> Difference:
    """Status and type are the same, the message says it otherwise."""
    return _texts(r"error\.message", operation, reference, ours, reason)


def field(path: str, *, reason: str, operation: str = "") -> Difference:
    """One place in the body, whatever it holds."""
    return _texts(path, operation, "", "", reason)


def _unchanged_view(exchange: Exchange, finding: Finding) -> bool:
    """A commit to a view that sets what is set already."""
    return exchange.request.operation == "commit view" and finding.path == "metadata-location"


def _texts(path: str, operation: str, reference: str, ours: str, reason: str) -> Difference:
    def explains(exchange: Exchange, finding: Finding) -> bool:
        return bool(
            re.match(operation, exchange.request.operation)
            and re.fullmatch(path, finding.path)
            and re.match(reference, str(finding.reference), re.DOTALL)
            and re.match(ours, str(finding.ours), re.DOTALL)
        )

    return Difference(reason, explains)


DIFFERENCES: tuple[Difference, ...] = (
    answer(
        r"500 : ",
        r"4\d\d ",
        reason="a body the reference cannot read ends in an HTML page with 500; it is the client's mistake",
    ),
    answer(
        r"500 NullPointerException: ",
        r"4\d\d ",
        reason="the reference trips over an id that is not there or a field that is missing; it is the client's mistake",
    ),
    answer(
        r"500 IllegalStateException: Invalid schema for v",
        r"400 IllegalArgumentException: Invalid schema for v",
        reason="a schema the format version does not allow is the client's mistake, not the server's",
    ),
    answer(
        r"500 IllegalStateException: Cannot replace view due to loss of view dialects",
        r"400 IllegalArgumentException: Cannot replace view due to loss of view dialects",
        reason="a version that loses a dialect is the client's mistake, not the server's",
    ),
    answer(
        r"500 IllegalStateException: Table UUID does not match",
        r"400 IllegalArgumentException: Cannot reassign table UUID",
        reason="the reference writes the other UUID first and notices afterwards",
    ),
    message(
        r"Invalid create requirements: \[org\.apache",
        r"Invalid create requirements: \[assert-",
        reason="the reference prints the addresses of its objects",
    ),
    field(
        r"metadata\.(versions\[0\]\.summary\..*|versions\[0\]\.timestamp-ms|version-log\[0\]\.timestamp-ms)",
        operation=".* view",
        reason="the reference replaces the summary and the time a client gives a view's first version",
    ),
    field(
        r"metadata\.properties\.created-at",
        operation="stage table",
        reason="the reference stamps a staged table with a property nobody asked for",
    ),
    field(
        r"metadata\.snapshots\[\d+\]\.sequence-number",
        reason="the reference does not write a sequence number of 0, which the format demands from version 2 on",
    ),
    field(
        r"metadata\.properties\.format-version",
        reason="the reference stores reserved properties that a commit sets, and shows them beside what they contradict",
    ),
    answer(
        r"200",
        r"400 IllegalArgumentException: Unsupported format version: v0",
        reason="the reference accepts a format version of 0",
    ),
    answer(
        r"400 ValidationException: Cannot set last added schema: no schema has been added",
        r"(200|409)",
        operation="commit view",
        reason="a schema that the view has already counts as added: -1 means it, whoever was first",
    ),
    message(
        r"Cannot set last added schema: no schema has been added",
        r"Cannot set current version to unknown version",
        operation="commit view",
        reason="a schema that the view has already counts as added: the next mistake is reported",
    ),
    field(
        r"error\.type",
        operation="commit view",
        reason="a schema that the view has already counts as added: the next mistake has a type of its own",
    ),
    Difference("a commit to a view that changes nothing writes no new file", _unchanged_view),
    answer(
        r"406 UnsupportedOperationException: Cannot apply update",
        r"400 BadRequestException: Cannot apply update",
        reason="an update that views do not know is the client's mistake; 406 is about media types",
    ),
    answer(
        r"409 CommitFailedException: Requirement failed",
        r"400 BadRequestException: (Cannot apply update|Malformed|Unknown)",
        reason="a request that nobody can understand is refused before its requirements are looked at",
    ),
    answer(
        r"200",
        r"400 ValidationException: Cannot set main to a tag",
        reason="main is always a branch; the reference lets it become a tag, and then no client can write",
    ),
    message(
        r"Cannot set main to unknown snapshot",
        r"Cannot set main to a tag",
        reason="main is always a branch: that mistake is reported before the unknown snapshot",
    ),
    message(
        r".*\(supported: v4\)",
        r".*\(supported: v3\)",
        reason="the reference already counts the unfinished format version 4",
    ),
    answer(
        r"400 IllegalArgumentException: arraySize cannot be negative",
        r"200",
        reason="the reference cannot remove more snapshots than there are; unknown ones are ignored",
    ),
    message(
        r"Cannot (sort|partition) by non-primitive source field",
        r"Cannot (sort|partition) by non-primitive source field",
        operation="(create|stage) table",
        reason="in the text of a type we print the ids the table would have, the reference those of the request",
    ),
)
