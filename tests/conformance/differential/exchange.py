"""One request sent to two servers, and what tells their answers apart."""

import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

ANSWER_SECONDS = 60
MAX_PAGES = 50
SENT_AGO_MS = 30_000  # clocks may differ by a minute within a table's log
SAME_MOMENT_MS = 15_000  # both servers are asked at once, but the machine may be busy

Json = Any


@dataclass(frozen=True)
class Request:
    """What both servers are asked. A string such as «uuid:T3» stands for what each server itself said about T3."""

    operation: str
    method: str
    path: str
    body: Json = None
    query: Mapping[str, str] = field(default_factory=dict)
    handle: str = ""  # under which name the table or view in the answer is remembered
    all_pages: bool = False  # follow next-page-token to the end

    def __str__(self) -> str:
        query = "?" + urlencode(self.query) if self.query else ""
        body = "" if self.body is None else " " + json.dumps(self.body, ensure_ascii=False)
        return f"{self.method} {self.path}{query}{body}"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Json
    same_file: bool = False  # the table or view is still in the file the server named last
    readable: bool = True

    @property
    def succeeded(self) -> bool:
        return self.status < 300 and self.readable

    @property
    def error(self) -> tuple[str, str]:
        """Type and message; empty if there are none, as in the answer to a HEAD."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return (str(error.get("type")), str(error.get("message"))) if isinstance(error, dict) else ("", "")

    def __str__(self) -> str:
        """The status, and of an error what a client decides by and what it prints."""
        return str(self.status) if self.succeeded else f"{self.status} {': '.join(self.error)}"


class Side:
    """One of the two servers: its connection, and what it said about the things that requests refer to."""

    def __init__(self, uri: str, prefix: str, root: str) -> None:
        address = urlsplit(uri)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=ANSWER_SECONDS)
        self._base = f"{address.path}/v1{prefix}"
        self._said: dict[str, str] = {"root": root}

    def close(self) -> None:
        self._connection.close()

    def ask(self, request: Request) -> Answer:
        answer = self._all_pages(request) if request.all_pages else self._send(request, request.query)
        if answer.succeeded and request.handle and isinstance(answer.body, dict):
            known = self._said.get(f"file:{request.handle}")
            answer = replace(answer, same_file=known is not None and known == answer.body.get("metadata-location"))
            self._remember(request.handle, answer.body)
        return answer

    def _send(self, request: Request, query: Mapping[str, str]) -> Answer:
        path = self._base + request.path + ("?" + urlencode(query, quote_via=quote) if query else "")
        body = None if request.body is None else json.dumps(self._resolve(request.body)).encode()
        # A name nobody gave stays as it is: both servers then see the same nonsense.
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            self._connection.request(request.method, path, body, headers)
        except ConnectionError:
            # The server closed the connection after its last answer; this request never reached it.
            self._connection.close()
            self._connection.request(request.method, path, body, headers)
        reply = self._connection.getresponse()
        data = reply.read()
        try:
            # An error may quote a place or a UUID, which means the same on both servers under the name we know it by.
            text = data.decode() if reply.status < 300 else self._unresolve(data.decode())
            return Answer(reply.status, json.loads(text) if text else None)
        except ValueError:
            unreadable = {"type": "unreadable", "message": data.decode(errors="replace")}
            return Answer(reply.status, {"error": unreadable}, readable=False)

    def _all_pages(self, request: Request) -> Answer:
        """All pages as one answer: the items in order, and how many each page had."""
        items: list[Json] = []
        sizes: list[int] = []
        token = ""
        for _ in range(MAX_PAGES):
            page = self._send(request, {**request.query, "pageToken": token})
            if not page.succeeded:
                return page
            found = page.body.get("identifiers", page.body.get("namespaces"))
            items += found
            sizes.append(len(found))
            token = page.body.get("next-page-token")
            if token is None:
                return Answer(page.status, {"items": items, "page-sizes": sizes})
        return Answer(page.status, {"endless": sizes})

    def _remember(self, handle: str, body: Mapping[str, Json]) -> None:
        metadata = body.get("metadata")
        if isinstance(metadata, dict):
            self._said[f"uuid:{handle}"] = metadata.get("table-uuid") or metadata.get("view-uuid") or ""
            self._said[f"location:{handle}"] = metadata.get("location", "")
        if body.get("metadata-location"):
            self._said[f"file:{handle}"] = body["metadata-location"]

    def _unresolve(self, text: str) -> str:
        for name, value in sorted(self._said.items(), key=lambda item: -len(item[1])):
            if value:
                text = text.replace(value, f"«{name}»")
        return text

    def _resolve(self, value: Json) -> Json:
        if isinstance(value, str):
            return re.sub("«([^»]*)»", lambda found: self._said.get(found[1], found[0]), value)
        if isinstance(value, dict):
            return {name: self._resolve(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        return value


@dataclass(frozen=True)
class Finding:
    """One place where the answers differ; `path` is `answer` if only one failed, or both in different ways."""

    path: str
    reference: Json
    ours: Json

    def __str__(self) -> str:
        return f"{self.path}: reference {_short(self.reference)}, ours {_short(self.ours)}"


@dataclass(frozen=True)
class Exchange:
    request: Request
    reference: Answer
    ours: Answer
    findings: tuple[Finding, ...]


UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# What a server makes up for itself inside a text: a place, an identity, a time, an address in memory.
MADE_UP = re.compile(
    rf"(?P<place>(?:file:)?/[^\s,;'\"\]}})]*)|(?P<uuid>{UUID})"
    r"|(?P<iso>\d{4}-\d\d-\d\dT[\d:.]+Z)|(?P<ms>\b1[6-9]\d{11}\b)|(?P<object>(?<=\w)@[0-9a-f]+)"
)
# These say where and as whom to read, or explain an error further, which is each server's own affair.
OWN_AFFAIR = {"config", "storage-credentials", "stack", "hint"}
WITHOUT_ORDER = {
    "updated", "removed", "missing", "items", "identifiers", "namespaces", "statistics", "partition-statistics"
}  # fmt: skip


class Comparison:
    """Compares answers, and holds the servers to what they said: a UUID or place always means the same thing."""

    def __init__(self) -> None:
        self._ours: dict[str, str] = {}
        self._reference: dict[str, str] = {}
        self._last_sent_ms = 0
        self._started_ms = int(time.time() * 1000)

    def now_ms(self) -> int:
        """A time to send, each one once: long enough ago that no server would make it up."""
        self._last_sent_ms = max(self._last_sent_ms + 1, int(time.time() * 1000) - SENT_AGO_MS)
        return self._last_sent_ms

    def compare(self, request: Request, reference: Answer, ours: Answer) -> Exchange:
        return Exchange(request, reference, ours, tuple(self._findings(request, reference, ours)))

    def _findings(self, request: Request, reference: Answer, ours: Answer) -> Iterator[Finding]:
        if reference.status != ours.status or not self._same_text(str(reference), str(ours)):
            yield Finding("answer", str(reference), str(ours))
        elif request.method != "HEAD" and reference.succeeded:
            yield from self._compare_values("", reference.body, ours.body)

    def _compare_values(self, path: str, one: Json, two: Json) -> Iterator[Finding]:
        if isinstance(one, dict) and isinstance(two, dict):
            for name in sorted({*one, *two} - OWN_AFFAIR):
                inner = f"{path}.{name}" if path else name
                if name not in one or name not in two:
                    yield Finding(inner, one.get(name, "absent"), two.get(name, "absent"))
                elif name in WITHOUT_ORDER:
                    yield from self._compare_values(inner, sorted(one[name], key=_rank), sorted(two[name], key=_rank))
                else:
                    yield from self._compare_values(inner, one[name], two[name])
        elif isinstance(one, list) and isinstance(two, list):
            if len(one) != len(two):
                yield Finding(path, one, two)
            else:
                for position, (first, second) in enumerate(zip(one, two, strict=True)):
                    yield from self._compare_values(f"{path}[{position}]", first, second)
        elif not self._same(one, two):
            yield Finding(path, one, two)

    def _same(self, one: Json, two: Json) -> bool:
        if type(one) is not type(two):
            return False
        if isinstance(one, str):
            return self._same_text(one, two)
        return bool(one == two) or (isinstance(one, int) and self._same_moment(one, two))

    def _same_moment(self, one: int, two: int) -> bool:
        """Two times around now, each of its server's making; one that was sent would be too old."""
        earliest = self._started_ms - SENT_AGO_MS
        return min(one, two) > earliest and abs(one - two) < SAME_MOMENT_MS

    def _same_text(self, one: str, two: str) -> bool:
        if all(text.startswith(("/", "file:")) for text in (one, two)):
            return self._paired("place", one, two)  # a name with a blank in it may be part of a place
        if MADE_UP.sub(_kind, one) != MADE_UP.sub(_kind, two):
            return False
        return all(
            self._paired(str(first.lastgroup), first[0], second[0])
            for first, second in zip(MADE_UP.finditer(one), MADE_UP.finditer(two), strict=True)
        )

    def _paired(self, kind: str, one: str, two: str) -> bool:
        if kind in ("iso", "object"):
            return True
        if kind == "ms":
            return one == two or self._same_moment(int(one), int(two))
        if kind == "place":  # file:/x, file:///x and /x are one place
            one, two = (re.sub("^(file:)?/+", "/", place) for place in (one, two))
        agreed = self._ours.get(one, two) == two and self._reference.get(two, one) == one
        self._ours[one], self._reference[two] = two, one  # a broken word is reported once
        return agreed


def _rank(value: Json) -> str:
    """An order that what the servers make up has no part in."""
    return MADE_UP.sub(_kind, json.dumps(value, sort_keys=True))


def _kind(found: re.Match[str]) -> str:
    return f"<{found.lastgroup}>"


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"
