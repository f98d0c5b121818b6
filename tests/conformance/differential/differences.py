"""Where our answers differ from the reference's on purpose: each entry says why, and is reported if it never occurs."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.conformance.differential.exchange import Exchange, Finding


@dataclass(frozen=True)
class Difference:
    reason: str
    explains: Callable[[Exchange, Finding], bool]
    parts: bool = False  # the servers hold different things afterwards, though both succeeded


def answer(reference: str, ours: str, *, reason: str, operation: str = "") -> Difference:
    """Status, type and message as they are printed; a group of one name in both expressions is the same text."""

    def explains(exchange: Exchange, finding: Finding) -> bool:
        one = re.match(reference, str(finding.reference), re.DOTALL)
        two = re.match(ours, str(finding.ours), re.DOTALL)
        return (
            finding.path == "answer"
            and re.match(operation, exchange.request.operation) is not None
            and one is not None
            and two is not None
            and one.groupdict() == two.groupdict()
        )

    return Difference(reason, explains)


def field(path: str, *, reason: str, operation: str = "", parts: bool = False) -> Difference:
    """A place in the body of an answer that succeeded, whatever it holds."""

    def explains(exchange: Exchange, finding: Finding) -> bool:
        in_question = re.match(operation, exchange.request.operation) is not None
        return in_question and re.fullmatch(path, finding.path) is not None

    return Difference(reason, explains, parts)


DIFFERENCES: tuple[Difference, ...] = (
    # The reference fails where the client is to blame.
    answer(
        r"500 unreadable: ",
        r"4\d\d ",
        reason="a body the reference cannot read ends in an HTML page with 500; it is the client's mistake",
    ),
    answer(
        r"500 unreadable: ",
        r"200",
        operation="create (view|table)|stage table",
        reason="properties that are null are taken as none",
    ),
    answer(
        r"500 (NullPointer|NumberFormat|IndexOutOfBounds|ClassCast)Exception: ",
        r"4\d\d ",
        reason="the reference trips over what is missing, unknown or not a number; it is the client's mistake",
    ),
    answer(
        r"500 NullPointerException: Cannot create a namespace with a null level",
        r"200",
        operation="list namespaces",
        reason="the reference takes the namespaces below a and b for those below a.b",
    ),
    Difference(
        "the reference cuts a parent at its dots, since the dot is the separator it prefers",
        lambda exchange, finding: "." in (parent := exchange.request.query.get("parent", "")) and "\x1f" not in parent,
    ),
    answer(
        r"500 IllegalStateException: (?P<text>.*)",
        r"400 (IllegalArgument|Validation)Exception: (?P<text>.*)",
        reason="what the client asks for and cannot have is its mistake; the reference calls it an illegal state",
    ),
    answer(
        r"500 IllegalStateException: Cannot replace view due to loss of view dialects",
        r"400 IllegalArgumentException: Cannot replace view due to loss of view dialects",
        reason="losing a dialect is the client's mistake too; the dialects are printed in any order",
    ),
    answer(
        r"500 IllegalStateException: Table UUID does not match|20[04]|400 ",
        r"400 IllegalArgumentException: Cannot reassign table UUID",
        reason="the reference writes another UUID and notices too late or never",
    ),
    answer(
        r"400 IllegalArgumentException: arraySize cannot be negative",
        r"20[04]|400 ",
        reason="the reference cannot remove more snapshots than there are; unknown ones are ignored",
    ),
    Difference(
        "the reference does not know again a schema that the same commit removed before",
        lambda exchange, finding: (
            '"remove-schemas"' in str(exchange.request)
            and "Cannot set last added schema" in str(finding.reference)
            and exchange.ours.succeeded
        ),
    ),
    answer(
        r"400 IllegalArgumentException: Cannot set metadata location with changes",
        r"200",
        operation="GET table",
        reason="the reference cannot show only the referenced snapshots if a reader would fix the metadata",
    ),
    answer(
        r"404 NotFoundException: Failed to open input stream for file: .*avro",
        r"204",
        operation="drop table",
        reason="dropping with purge needs no files to be there: a job deletes what it finds",
    ),
    # The reference accepts what it should not.
    answer(
        r"200|500 IllegalStateException: Invalid schema for v0",
        r"400 IllegalArgumentException: Unsupported format version: v0",
        reason="there is no format version 0",
    ),
    answer(
        r"20[04]",
        r"400 ValidationException: Cannot set main to a tag",
        reason="main is always a branch; the reference lets it become a tag, and then no client can write",
    ),
    answer(
        r"(200|409 AlreadyExistsException)",
        r"400 BadRequestException: Invalid namespace( name)?: must ",
        operation="create namespace",
        reason="a namespace without a name could not be addressed by any URL",
    ),
    answer(
        r"200|409 AlreadyExistsException",
        r"400 BadRequestException: Malformed request: Expected `str`",
        operation="create namespace",
        reason="a property is a text; the reference makes one of a number",
    ),
    answer(
        r"200",
        r"404 NoSuchNamespaceException: |409 AlreadyExistsException: View with same name",
        operation="stage table",
        reason="the reference stages a table without a namespace or in a view's place; its commit could only fail",
    ),
    answer(
        r"204",
        r"404 NoSuch(Table|View)Exception: ",
        operation="rename",
        reason="the reference renames what does not exist to its own name without complaint",
    ),
    field(
        r"metadata\.properties\.format-version",
        reason="the reference stores reserved properties that a commit sets, and shows them beside what they deny",
    ),
    # We are more lenient, or say more.
    answer(
        r"400 ValidationException: Cannot set last (added schema|version id): no ",
        r"",
        operation="commit view",
        reason="a schema or version that the view has already counts as added: -1 means it, whoever was first",
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
    Difference(
        "the reference does not write a sequence number of 0, which the format demands from version 2 on",
        lambda _, finding: finding.path.endswith("].sequence-number") and finding.ours == 0,
    ),
    answer(
        r"409 CommitFailedException: .* sequence number 0 older than",
        r"20[04]",
        operation="commit (table|transaction)",
        reason="a snapshot that comes without a sequence number gets the next one; for the reference it is 0",
    ),
    field(
        r"metadata\.(snapshots\[\d+\]\.|last-)sequence-number",
        operation="(commit|GET) table",
        reason="from version 2 on a snapshot that comes without a sequence number gets the next one",
        parts=True,
    ),
    Difference(
        "a commit after which everything is as before writes no new file; the reference looks at the updates alone",
        lambda exchange, finding: (
            exchange.ours.same_file
            and not exchange.reference.same_file
            and finding.path.startswith(("metadata-location", "metadata.metadata-log", "metadata.last-updated-ms"))
        ),
        parts=True,
    ),
    answer(
        r"200",
        r"409 AlreadyExistsException: Namespace already exists: z",
        operation="create missing parent",
        reason="a namespace is created with the levels above it; in the reference they exist only as part of its name",
    ),
    field(
        r"properties\.location",
        operation="GET namespace",
        reason="a namespace shows where its tables go; engines build locations from it",
    ),
    field(
        r"next-page-token",
        operation="list",
        reason="without a next page the token is left out; null means the same",
    ),
    field(
        r"metadata\.(last-partition-id|partition-specs\[\d+\]\.fields\[\d+\]\.field-id)",
        operation="(commit|GET) table",
        reason="a partition field without an id gets one that no other field has; the reference starts again at 1000",
        parts=True,
    ),
    # The same refusal, said otherwise or by another check.
    answer(
        r"(?P<status>\d+ \w+: )Cannot (create|list|rename) .*?\. (?P<text>.*)",
        r"(?P<status>\d+ \w+: )(?P<text>.*)",
        reason="the reference's in-memory catalog says first what it could not do; the rest is the same",
    ),
    answer(
        r"(?P<type>\d+ \w+: )Cannot (create|rename) .*(already exists|does not exist)",
        r"(?P<type>\d+ \w+: )(Namespace|Table|View) (already exists|does not exist): ",
        reason="the reference's in-memory catalog has its own words for what is missing or taken; we use the handlers'",
    ),
    answer(
        r"409 NamespaceNotEmptyException: Namespace (?P<name>.*) is not empty",
        r"409 NamespaceNotEmptyException: Namespace (?P<name>.*) is not empty",
        reason="of what a namespace holds we count tables or views first, the reference child namespaces",
    ),
    answer(
        r"200|400 IllegalArgumentException: (fromIndex\(0\) > toIndex|No enum constant)",
        r"400 BadRequestException: Invalid (pageSize|snapshots): ",
        reason="the reference tells how it failed, not what is wrong with the parameter",
    ),
    answer(
        r"400 BadRequestException: No route for request: \w+ v1/",
        r"400 BadRequestException: No route for request: \w+ /v1/",
        reason="we print the path that was asked for",
    ),
    answer(
        r"40[05] (BadRequestException: No route for request)?",
        r"405 MethodNotAllowedException: ",
        operation="nonsense",
        reason="a known path with another method is 405, with the methods there are",
    ),
    answer(
        r"406 UnsupportedOperationException: (?P<text>Cannot apply update .*)",
        r"400 BadRequestException: (?P<text>Cannot apply update .*)",
        reason="an update that views do not know is the client's mistake; 406 is about media types",
    ),
    answer(
        r"409 CommitFailedException: Requirement failed",
        r"400 (BadRequestException: (Cannot apply update|Malformed|Unknown)|ValidationException: Cannot validate)",
        reason="a request that nobody can understand is refused before its requirements are looked at",
    ),
    answer(
        r"409 CommitFailedException: Requirement failed: table already exists",
        r"400 IllegalArgumentException: Invalid create requirements",
        operation="commit transaction",
        reason="in a transaction the reference does not look whether assert-create stands alone",
    ),
    answer(
        r"409 (?P<type>\w+): (?P<text>.*)$",
        r"409 (?P<type>\w+): .+?: (?P<text>.*)$",
        operation="commit transaction",
        reason="the conflict of a transaction names the table it is about",
    ),
    answer(
        r"400 IllegalArgumentException: Invalid create requirements: \[org\.apache",
        r"400 IllegalArgumentException: Invalid create requirements: \[assert-",
        reason="the reference prints the addresses of its objects",
    ),
    answer(
        r"400 IllegalArgumentException: Invalid .*(null|empty)",
        r"400 BadRequestException: (Malformed request: |Invalid )",
        reason="what is missing in a body is found when it is read, and the message says where",
    ),
    answer(
        r"(?P<text>400 .*)\(supported: v4\)",
        r"(?P<text>400 .*)\(supported: v3\)",
        reason="the reference already counts the unfinished format version 4",
    ),
    answer(
        r"400 ValidationException: (?P<text>Cannot \w+ (by non-primitive source field|source column))",
        r"400 ValidationException: (?P<text>Cannot \w+ (by non-primitive source field|source column))",
        operation="(create|stage) table",
        reason="in such a text we print the ids the table would have, the reference those of the request",
    ),
    answer(
        r"400 ValidationException: Invalid snapshot with sequence number \d+ greater than",
        r"400 ValidationException: Invalid snapshot with sequence number \d+ greater than",
        reason="of several snapshots with a greater number we name the last, the reference the first",
    ),
    answer(
        r"400 ValidationException: ",
        r"409 AlreadyExistsException: View with same name already exists|404 NoSuchNamespaceException: ",
        operation="commit staged table",
        reason="that a name is taken or its namespace gone is seen before the updates are applied",
    ),
    answer(
        r"400 IllegalArgumentException: Unsupported type",
        r"400 ValidationException: (Invalid source type .* for transform: |Cannot sort by non-primitive source field)",
        reason="the reference has two checks for the same mistake, in two classes",
    ),
)
