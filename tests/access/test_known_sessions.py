"""The cache of sessions and their rights: weighed in bytes, without what has expired, and without a token in clear."""

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from nunatak.access import known_sessions
from nunatak.access.known_sessions import Known, KnownSessions, digest_of
from nunatak.access.sessions import NEVER_MS, session_of
from nunatak.api.transport.exchange import KnownHeads, parse_head
from nunatak.api.transport.fast_path import FastPath
from tests.api.wire import ok, path_of
from tests.support.catalogs.local import LocalCatalog

MIB = 1024 * 1024


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    made.namespace("ns")
    yield made
    made.close()


def a_session(name: str = "ann", expires_ms: int = NEVER_MS) -> Known:
    return Known(session_of(name, (), expires_ms=expires_ms), 1)


def rights(session: int, count: int) -> tuple[list[str], list[int]]:
    return [f"warehouse\x1fnamespace{session}.\x1etable{number:060}" for number in range(count)], [1024] * count


def test_sessions_and_rights_together_weigh_no_more_than_the_limit(clock: Clock) -> None:
    sessions = KnownSessions(clock, most_bytes=2 * MIB)
    for number in range(100):
        known = a_session()
        sessions.add(digest_of(b"%d" % number), known)
        known.remember(*rights(number, 500))
        assert sessions.bytes <= 2 * MIB

    assert 5 < len(sessions) < 100
    assert sessions.find(digest_of(b"99")) is not None
    assert sessions.find(digest_of(b"0")) is None  # the oldest went
    sessions.clear()
    assert sessions.bytes == 0


def test_a_session_weighs_what_it_takes(clock: Clock) -> None:
    """Within a factor of two of what the interpreter says, for rights as for origins."""
    sessions = KnownSessions(clock)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(50):
            known = a_session()
            sessions.add(digest_of(b"%d" % number), known)
            known.remember(*rights(number, 200))
            for agent in range(20):
                known.origin("10.0.0.1", b"client %0500d" % agent)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert taken / 2 < sessions.bytes < taken * 2


def test_a_session_whose_rights_are_too_many_keeps_those_asked_for_last(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_sessions, "MAX_BYTES_OF_ONE", MIB // 4)
    sessions, known = KnownSessions(clock), a_session()
    sessions.add(b"digest", known)

    for number in range(20):
        wanted, found = rights(number, 300)
        known.remember(wanted, found)
        assert all(each in known.rights for each in wanted)
        assert known.weight_bytes <= MIB // 4

    known.remember(wanted, found)  # the same weigh nothing more
    assert sessions.bytes == known.weight_bytes


def test_a_session_that_expired_is_dropped_although_nobody_sends_its_token_again(clock: Clock) -> None:
    sessions = KnownSessions(clock)
    for number in range(10):
        sessions.add(b"%d" % number, a_session(expires_ms=clock.now_ms + 1000))
    sessions.add(b"other", a_session())
    clock.now_ms += known_sessions.SWEEP_MS

    assert sessions.find(b"other") is not None
    assert len(sessions) == 1
    assert sessions.bytes == known_sessions.SESSION_BYTES


def test_a_session_is_not_found_from_its_last_moment_on(clock: Clock) -> None:
    sessions = KnownSessions(clock)
    sessions.add(b"digest", a_session(expires_ms=clock.now_ms + 1))
    assert sessions.find(b"digest") is not None
    clock.now_ms += 1

    assert sessions.find(b"digest") is None
    assert (len(sessions), sessions.bytes) == (0, 0)


def holding(secret: bytes, *roots: object) -> list[object]:
    """Every text or bytes that hold the secret, of all that the roots lead to."""
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    found: list[object] = []
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, ModuleType | FunctionType | type):
            continue
        seen.add(id(each))
        if (isinstance(each, bytes) and secret in each) or (isinstance(each, str) and secret.decode() in each):
            found.append(each)
        waiting.extend(gc.get_referents(each))
    return found


def test_what_a_server_remembers_of_requests_holds_no_token(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    token = catalog.keys["root"].encode()
    url, header = path_of("ns", "tables", "t").encode(), (b"authorization", b"Bearer " + token)
    ok(catalog.call("GET", url.decode()))
    get = b"GET %b HTTP/1.1\r\nauthorization: Bearer %b\r\n\r\n" % (url, token)
    lane, heads = FastPath(catalog.app, catalog.store), KnownHeads()
    lane.remember(get, url, [header])
    post = get.replace(b"GET", b"POST") + b"{}"
    heads.remember(post, parse_head(b"POST", url, [(b"host", b"x"), header]), 2)

    assert lane.find(get) is not None
    assert lane.find(get.replace(token, token[::-1])) is None
    assert lane.answer(url, [header]) is not None  # known by the digest alone
    known = heads.find(post)
    assert known is not None
    assert (known[0].headers, known[1]) == (dict([(b"host", b"x"), header]), b"{}")
    assert heads.find(post.replace(token, token[::-1])) is None
    del known
    assert holding(token, {get: 1}) == [get]  # the search itself finds one
    assert holding(token, catalog.app, lane, heads) == []
