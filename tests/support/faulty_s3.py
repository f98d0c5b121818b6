"""A proxy in front of an S3 store that counts requests and fails chosen ones. Signatures stay valid."""

import contextlib
import enum
import random
import re
import socket
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.forwarding import Answer, ForwardingHandler, forward, serving

TORN_PAUSE_SECONDS = 0.2  # the store reads the first half before the connection ends
LATE_SECONDS = 0.3


class S3Fault(enum.Enum):
    """What happens to one request."""

    REFUSE = "answered with an error, not passed on"
    DROP = "the connection is closed, nothing is passed on"
    SLOW = "passed on after a while"
    TORN = "half of the body is passed on under the full length, then both connections are closed"
    CUT = "passed on and done, then the connection is closed without an answer"
    FAIL_AFTER = "passed on and done, then answered with an error"
    TWICE = "passed on twice, answered with the second answer"
    LATE = "the connection is closed, the request reaches the store afterwards"


@dataclass(frozen=True)
class SeenRequest:
    method: str
    target: str  # path and query, as sent
    fault: S3Fault | None
    statuses: tuple[int, ...]  # what the store answered, in order; none if it never got the request

    @property
    def line(self) -> str:
        return f"{self.method} {self.target}"


@dataclass
class _Rule:
    pattern: re.Pattern[str]
    fault: S3Fault
    times: int | None
    share: float
    seconds: float
    status: int
    code: str


@dataclass
class FaultyS3:
    """`endpoint` takes the place of the store's; `requests` lists what came, the oldest first."""

    store_endpoint: str
    endpoint: str = ""
    latency_seconds: float = 0.0  # added to every request
    requests: list[SeenRequest] = field(default_factory=list)
    _rules: list[_Rule] = field(default_factory=list)
    _chance: random.Random = field(default_factory=random.Random)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _late: list[threading.Thread] = field(default_factory=list)

    def inject(
        self,
        pattern: str,
        fault: S3Fault,
        *,
        times: int | None = None,
        share: float = 1.0,
        seconds: float = 0.05,
        status: int = 500,
        code: str = "InternalError",
    ) -> None:
        """Fails requests whose `METHOD path?query` the regular expression finds: the first `times`, or that share.

        The first rule that fits decides. `status` and `code` are those of REFUSE and FAIL_AFTER.
        """
        with self._lock:
            self._rules.append(_Rule(re.compile(pattern), fault, times, share, seconds, status, code))

    def heal(self) -> None:
        """Ends all faults and waits for the requests that are still on their way to the store."""
        with self._lock:
            self._rules.clear()
        for thread in self._late:
            thread.join()
        self._late.clear()

    def forget(self) -> None:
        """Starts counting anew."""
        with self._lock:
            self.requests.clear()

    def seed(self, seed: int) -> None:
        """Makes the choices of `share` the same in every run."""
        self._chance.seed(seed)

    def counts(self, pattern: str = "") -> Counter[str]:
        """Returns how many requests came by method, of those that the regular expression finds."""
        with self._lock:
            return Counter(each.method for each in self.requests if re.search(pattern, each.line))

    def choose(self, line: str) -> _Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.times != 0 and rule.pattern.search(line) and self._chance.random() < rule.share:
                    rule.times = None if rule.times is None else rule.times - 1
                    return rule
        return None

    def note(self, seen: SeenRequest) -> None:
        with self._lock:
            self.requests.append(seen)

    def send_late(self, thread: threading.Thread) -> None:
        with self._lock:
            self._late.append(thread)
        thread.start()


class _Handler(ForwardingHandler):
    proxy: FaultyS3

    def respond(self, body: bytes) -> Answer | None:
        rule = self.proxy.choose(f"{self.command} {self.path}")
        time.sleep(self.proxy.latency_seconds + (rule.seconds if rule and rule.fault is S3Fault.SLOW else 0))
        answers: list[Answer] = []
        try:
            return self._answer(rule, body, answers)
        finally:
            statuses = tuple(each.status for each in answers)
            self.proxy.note(SeenRequest(self.command, self.path, rule.fault if rule else None, statuses))

    def _answer(self, rule: _Rule | None, body: bytes, answers: list[Answer]) -> Answer | None:
        fault = rule.fault if rule else None
        if rule and fault is S3Fault.REFUSE:
            return _error(rule)
        if fault is S3Fault.DROP:
            return None
        if fault is S3Fault.TORN:
            self._tear(body)
            return None
        if fault is S3Fault.LATE:
            self.proxy.send_late(threading.Thread(target=self._send_late, args=(body,)))
            return None
        answers += [self._forward(body) for _ in range(2 if fault is S3Fault.TWICE else 1)]
        if fault is S3Fault.CUT:
            return None
        return _error(rule) if rule and fault is S3Fault.FAIL_AFTER else answers[-1]

    def _send_late(self, body: bytes) -> None:
        time.sleep(LATE_SECONDS)
        answer = self._forward(body)
        self.proxy.note(SeenRequest(self.command, self.path, S3Fault.LATE, (answer.status,)))

    def _forward(self, body: bytes) -> Answer:
        return forward(self.proxy.store_endpoint, self.command, self.path, self.headers.items(), body)

    def _tear(self, body: bytes) -> None:
        where = urllib.parse.urlsplit(self.proxy.store_endpoint)
        lines = [f"{self.command} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers.items() if name.lower() != "expect"]
        with socket.create_connection((where.hostname or "", where.port or 80)) as store:
            store.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body[: len(body) // 2])
            time.sleep(TORN_PAUSE_SECONDS)


def _error(rule: _Rule) -> Answer:
    text = f'<?xml version="1.0"?><Error><Code>{rule.code}</Code><Message>injected by a test</Message></Error>'
    return Answer(rule.status, (("Content-Type", "application/xml"),), text.encode())


@contextlib.contextmanager
def faulty_s3(store_endpoint: str) -> Iterator[FaultyS3]:
    proxy = FaultyS3(store_endpoint)
    with serving(_Handler, {"proxy": proxy}) as endpoint:
        proxy.endpoint = endpoint
        try:
            yield proxy
        finally:
            proxy.heal()
