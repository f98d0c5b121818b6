"""OPA as the decision point: the real one with the policy of the docs, and doubles that misbehave on a real socket."""

import asyncio
import contextlib
import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from nunatak import settings
from nunatak.access import opa as opa_module
from nunatak.access.opa import MAX_SECURABLES, Opa, open_opa
from nunatak.access.privileges import ADMIN, EVERYTHING, READ, WRITE, Privilege
from nunatak.access.securables import SERVER, entry, namespace, warehouse
from nunatak.access.sessions import Session, session_of
from nunatak.errors import ServiceUnavailable
from nunatak.settings import SettingsError
from tests.support.opa import BUILD_SECONDS, NOT_INSTALLED, find_opa, replace_policy, running_opa
from tests.support.pages import blocks_with

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "decide-with-opa.md"
EXAMPLE = blocks_with(PAGE, "rego")
DOCUMENT = "/v1/data/nunatak/rights"

SALES = namespace("default", ("sales",))
ORDERS = entry("default", ("sales",), "orders")
NESTED = entry("default", ("sales", "eu"), "orders")
OTHER = entry("default", ("hr",), "salaries")

# The first test of the real one may have to build it.
with_opa = pytest.mark.timeout(BUILD_SECONDS)


def ana(*, roles: tuple[str, ...] = ("analysts",), only_roles: bool = False) -> Session:
    return session_of("ana", roles, only_roles=only_roles, method="oidc")


def opened(url: str, token: str = "") -> Opa:
    return open_opa(settings.load({"opa_url": url, "opa_token": token}, {}))


def rights_of(url: str, session: Session, *securables: str, token: str = "") -> list[int]:
    return uvloop.run(asked(opened(url, token), lambda opa: opa.rights(session, securables)))


def sees(url: str, session: Session, container: str) -> bool:
    return rights_of(url, session, container) != [0]


async def asked(opa: Opa, question: Callable[[Opa], Awaitable[Any]]) -> Any:
    try:
        return await question(opa)
    finally:
        await opa.close()


# The real one


@pytest.fixture(scope="module")
def program() -> Path:
    found = find_opa()
    if found is None:
        pytest.skip(NOT_INSTALLED)
    return found


@pytest.fixture(scope="module")
def example(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server with the policy that the page shows; the address of its document."""
    folder = tmp_path_factory.mktemp("opa")
    (policy,) = EXAMPLE
    (folder / "nunatak.rego").write_text(policy)
    with running_opa([folder / "nunatak.rego"], folder / "opa.log") as address:
        yield address + DOCUMENT


@pytest.fixture
def writable(program: Path, tmp_path: Path) -> Iterator[str]:
    """A server without any policy, to be given some; its address."""
    with running_opa([], tmp_path / "opa.log") as address:
        yield address


@with_opa
@pytest.mark.parametrize(
    ("session", "securable", "held"),
    [
        (ana(), ORDERS, READ),
        (ana(), NESTED, READ),
        (ana(), SALES, READ),
        (ana(), OTHER, 0),
        (ana(), warehouse("default"), Privilege.SEE),
        (ana(), SERVER, Privilege.SEE),
        (ana(), namespace("default", ("sales2",)), 0),
        (ana(), entry("other", ("sales",), "orders"), 0),
        (ana(), entry("default", ("sales",), "_raw_orders"), 0),
        (ana(roles=()), ORDERS, 0),
        (session_of("etl", ()), OTHER, WRITE),
        (session_of("etl", ()), warehouse("other"), 0),
        (session_of("auditor", ()), ORDERS, Privilege.TABLE_READ_META),
        (session_of("auditor", ()), SALES, Privilege.SEE),
        (session_of("root", ("admins",)), SERVER, EVERYTHING),
        (session_of("root", ("admins",)), entry("default", ("sales",), "_raw_orders"), EVERYTHING),
        (session_of("", ()), ORDERS, 0),
    ],
)
def test_the_policy_of_the_docs_decides_as_the_page_says(
    example: str, session: Session, securable: str, held: int
) -> None:
    """003-41, 003-75: who may do what is the policy engine's word."""
    assert rights_of(example, session, securable) == [held]


@with_opa
def test_a_container_is_seen_by_whoever_holds_something_inside(example: str) -> None:
    assert sees(example, ana(), warehouse("default"))
    assert sees(example, ana(), SERVER)
    assert sees(example, ana(), SALES)
    assert sees(example, session_of("auditor", ()), SALES)
    assert not sees(example, ana(), warehouse("other"))
    assert not sees(example, ana(), namespace("default", ("sale",)))
    assert not sees(example, ana(roles=()), SERVER)


@with_opa
def test_names_with_slashes_dots_and_quotes_are_told_apart(writable: str) -> None:
    odd = 'a/b%2F.c" \\ ü'
    replace_policy(
        writable,
        "odd",
        "package nunatak\n"
        "rights := [held | some s in input.securables; held := [p | s.namespace == input_levels; p := s.name]]\n"
        f"input_levels := {json.dumps([odd, 'x'])}\n",
    )
    asked_about = [entry("default", levels, "READ") for levels in ((odd, "x"), ("a", "b"), ("a.b",), ("a/b",))]

    assert rights_of(writable + DOCUMENT, ana(), *asked_about) == [READ, 0, 0, 0]


@with_opa
def test_many_securables_are_decided_in_their_order(example: str) -> None:
    tables = [
        entry("default", ("sales" if number % 3 else "hr",), f"t{number}") for number in range(2 * MAX_SECURABLES)
    ]

    assert rights_of(example, ana(), *tables) == [READ if number % 3 else 0 for number in range(2 * MAX_SECURABLES)]


@with_opa
def test_a_changed_policy_decides_the_next_question(writable: str) -> None:
    async def scene(opa: Opa) -> None:
        replace_policy(writable, "p", 'package nunatak\nrights := [["ADMIN"]]')
        assert await opa.rights(ana(), [ORDERS]) == [ADMIN]
        replace_policy(writable, "p", "package nunatak\nrights := [[]]")
        assert await opa.rights(ana(), [ORDERS]) == [0]

    uvloop.run(asked(opened(writable + DOCUMENT), scene))


@with_opa
def test_a_session_limited_to_roles_gets_nothing_by_name_and_loses_what_is_forbidden_by_name(writable: str) -> None:
    replace_policy(
        writable,
        "p",
        "package nunatak\n"
        "rights := [array.concat(by_name, by_role)]\n"
        'default by_name := []\nby_name := ["ADMIN"] if input.principal == "ana"\n'
        'default by_role := []\nby_role := ["READ"] if { "analysts" in input.roles; input.principal != "mallory" }\n',
    )
    document = writable + DOCUMENT

    assert rights_of(document, ana(), ORDERS) == [ADMIN]
    assert rights_of(document, ana(only_roles=True), ORDERS) == [READ]
    assert rights_of(document, session_of("mallory", ("analysts",), only_roles=True), ORDERS) == [0]


@with_opa
@pytest.mark.parametrize(
    "policy",
    [
        "package elsewhere\nrights := [[]]",
        "package nunatak\nrights := [[]] if input.principal == 1",
        "package nunatak\nrights := true",
        'package nunatak\nrights := ["READ"]',
        "package nunatak\nrights := [[1]]",
        'package nunatak\nrights := {"0": ["READ"]}',
        "package nunatak\nrights := []",
        'package nunatak\nrights := [["READ"], ["READ"]]',
        'package nunatak\nrights := [["READ", "EVERYTHING"]]',
        'package nunatak\nrights := [["CONFIG_READ"]]',
        'package nunatak\nrights := [["read"]]',
        'package nunatak\nrights := [["READ"]] if input.method\nrights := [["WRITE"]] if input.principal == "ana"',
    ],
    ids=range(12),
)
def test_a_policy_that_gives_no_usable_answer_lets_nobody_in(writable: str, policy: str) -> None:
    replace_policy(writable, "p", policy)

    with pytest.raises(ServiceUnavailable):
        rights_of(writable + DOCUMENT, ana(), ORDERS)
    with pytest.raises(ServiceUnavailable):
        sees(writable + DOCUMENT, ana(), SALES)


@with_opa
def test_a_token_opens_an_opa_that_asks_for_one(program: Path, tmp_path: Path) -> None:
    (tmp_path / "rights.rego").write_text('package nunatak\nrights := [["READ"]]')
    (tmp_path / "authz.rego").write_text(
        'package system.authz\ndefault allow := false\nallow if input.identity == "a-token-of-ours"'
    )
    policies = [tmp_path / "rights.rego", tmp_path / "authz.rego"]
    with running_opa(
        policies, tmp_path / "opa.log", options=("--authentication=token", "--authorization=basic")
    ) as address:
        assert rights_of(address + DOCUMENT, ana(), ORDERS, token="a-token-of-ours") == [READ]
        for wrong in ("", "another"):
            with pytest.raises(ServiceUnavailable) as refused:
                rights_of(address + DOCUMENT, ana(), ORDERS, token=wrong)
            assert "another" not in str(refused.value)


@with_opa
def test_https_is_believed_only_with_a_certificate_of_a_known_authority(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    (tmp_path / "rights.rego").write_text('package nunatak\nrights := [["READ"]]')
    options = (f"--tls-cert-file={tmp_path}/certificate.pem", f"--tls-private-key-file={tmp_path}/key.pem")

    with running_opa([tmp_path / "rights.rego"], tmp_path / "log", scheme="https", options=options) as address:
        with pytest.raises(ServiceUnavailable) as refused:
            rights_of(address + DOCUMENT, ana(), ORDERS)
        assert "CERTIFICATE_VERIFY_FAILED" in str(refused.value.__cause__)

        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert rights_of(address + DOCUMENT, ana(), ORDERS) == [READ]
        with pytest.raises(ServiceUnavailable):  # the certificate is for another name
            rights_of(address.replace("127.0.0.1", "localhost") + DOCUMENT, ana(), ORDERS)


@with_opa
def test_the_server_may_start_before_opa_and_outlive_it(program: Path, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "p.rego").write_text('package nunatak\nrights := [["READ"]]')

    async def scene() -> None:
        with running_opa([tmp_path / "p.rego"], tmp_path / "log") as address:
            opa = opened(address + DOCUMENT)
            assert await opa.rights(ana(), [ORDERS]) == [READ]
        for _ in range(3):
            with pytest.raises(ServiceUnavailable):
                await opa.rights(ana(), [ORDERS])
        port = address.rpartition(":")[2]
        with running_opa([tmp_path / "p.rego"], tmp_path / "log", options=("--addr", f"127.0.0.1:{port}")):
            await answers_again(opa, 200)
        await opa.close()

    async def answers_again(opa: Opa, tries: int) -> None:
        for _ in range(tries):
            with contextlib.suppress(ServiceUnavailable):
                assert await opa.rights(ana(), [ORDERS]) == [READ]
                return
            await asyncio.sleep(0.05)
        raise AssertionError("OPA is back, and nobody noticed")

    with caplog.at_level(logging.WARNING):
        uvloop.run(scene())

    said = [record.getMessage() for record in caplog.records if record.name == opa_module.__name__]
    assert said[-1] == "OPA answers again"
    assert 2 <= len(said) <= 4  # not one line for each request that was refused


# Doubles that misbehave

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Double:
    """A server of one behaviour; `questions` are the bodies it read, `connections` how many were opened."""

    def __init__(self, behave: Behaviour) -> None:
        self.connections = 0
        self.questions: list[Any] = []
        self.heads: list[bytes] = []
        self._behave = behave
        self._open: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    async def read_question(self, reader: asyncio.StreamReader) -> Any:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        body = json.loads(await reader.readexactly(int(length.group(1))))
        self.heads.append(head)
        self.questions.append(body)
        return body

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.append((asyncio.create_task(self._serve(reader, writer)), writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._behave(reader, writer)
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Opa]:
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        opa = opened(f"http://127.0.0.1:{port}{DOCUMENT}")
        try:
            yield opa
        finally:
            await opa.close()
            server.close()
            for task, writer in self._open:
                task.cancel()
                writer.transport.abort()
            await asyncio.wait([task for task, _ in self._open])


def answer(body: bytes, status: str = "200 OK", head: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


READ_IT = answer(b'{"result": [["READ"]]}')


def raw(*pieces: bytes) -> Double:
    """Reads the question, then writes this and closes."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await double.read_question(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    double = Double(behave)
    return double


def kept(replies: Sequence[bytes]) -> Double:
    """Answers one question after the other over a connection it keeps."""
    left = list(replies)

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            await double.read_question(reader)
            writer.write(left.pop(0))

    double = Double(behave)
    return double


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b'{"result": [["READ"]]}',
        b"HTTP/1.1 200 OK\r\n\r\n" + b'{"result": [["READ"]]}',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + b'{"result": [["READ"]]}',
        answer(b'{"result": [["READ"]]}', "204 No Content"),
        answer(b'{"result": [["READ"]]}', "201 Created"),
        answer(b'{"result": [["READ"]]}', "404 Not Found"),
        answer(b'{"result": [["READ"]]}', "500 Internal Server Error"),
        answer(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"),
        answer(b""),
        answer(b"null"),
        answer(b"{}"),
        answer(b'{"result": null}'),
        answer(b'{"result": [null]}'),
        answer(b'{"result": [["READ"]'),
        answer(b'{"result": [["READ"]]} x'),
        answer(b'{"result": [["\xff"]]}'),
        answer(b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b', "result": [["READ"]]}'),
        answer(b'[["READ"]]'),
        answer(b'{"Result": [["READ"]]}'),
    ],
)
def test_an_answer_that_is_not_one_lets_nobody_in(reply: bytes) -> None:
    async def scene() -> None:
        async with raw(reply).running() as opa:
            with pytest.raises(ServiceUnavailable) as refused:
                await opa.rights(ana(), [ORDERS])
            with pytest.raises(ServiceUnavailable):
                await opa.rights(ana(only_roles=True), [SALES])
        assert refused.value.status == 503
        assert "127.0.0.1" not in refused.value.message

    uvloop.run(scene())


def test_an_answer_in_pieces_and_chunks_is_read(caplog: Any) -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"result\r\ne\r\n": [["READ"]]}\r\n0\r\n\r\n'

    async def scene() -> None:
        for reply in (chunked, READ_IT):
            async with raw(*(bytes([byte]) for byte in reply)).running() as opa:
                assert await opa.rights(ana(), [ORDERS]) == [READ]

    uvloop.run(scene())


def test_silence_ends_at_the_deadline_and_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a peer that sends a byte now and then, which would hold up a limit on each read for ever."""
    monkeypatch.setattr(opa_module, "DEADLINE_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        for byte in READ_IT[:-1]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    async def scene() -> None:
        for behave in (silent, dripping):
            async with Double(behave).running() as opa:
                with pytest.raises(ServiceUnavailable) as refused:
                    await opa.rights(ana(), [ORDERS])
                assert "no answer within" in str(refused.value.__cause__)

    uvloop.run(scene())


def test_the_deadline_is_two_seconds() -> None:
    assert opa_module.DEADLINE_SECONDS == 2


def test_a_refused_connection_lets_nobody_in() -> None:
    with pytest.raises(ServiceUnavailable):
        rights_of(f"http://127.0.0.1:1{DOCUMENT}", ana(), ORDERS)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opa_module, "MAX_ANSWER_BYTES", 100_000)

    async def scene() -> None:
        async with raw(answer(b'{"result": [["READ"]], "x": "' + b"x" * 200_000 + b'"}')).running() as opa:
            with pytest.raises(ServiceUnavailable) as refused:
                await opa.rights(ana(), [ORDERS])
        assert "beyond" in str(refused.value.__cause__)

    uvloop.run(scene())


def test_a_late_answer_never_becomes_the_answer_to_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first caller gave up; what comes for it must not let the second one in."""
    monkeypatch.setattr(opa_module, "DEADLINE_SECONDS", 0.2)
    first = True

    async def late_for_the_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        while True:
            await double.read_question(reader)
            late, first = first, False
            if late:
                await asyncio.sleep(0.3)
            writer.write(answer(b'{"result": [["ADMIN"]]}' if late else b'{"result": [[]]}'))

    double = Double(late_for_the_first)

    async def scene() -> None:
        async with double.running() as opa:
            with pytest.raises(ServiceUnavailable):
                await opa.rights(ana(), [ORDERS])
            await asyncio.sleep(0.2)
            monkeypatch.setattr(opa_module, "DEADLINE_SECONDS", 60)  # the second is answered at once, or when it can be
            assert await opa.rights(ana(), [ORDERS]) == [0]

    uvloop.run(scene())


@pytest.mark.parametrize("kept_back", [0, 10])
@pytest.mark.parametrize("gap", [False, True])
def test_an_answer_nobody_asked_for_is_thrown_away(gap: bool, kept_back: int) -> None:
    """Whole, or with its end coming only when the next question is there; the connection is given up."""
    nobody_may, everybody_may = answer(b'{"result": [[]]}'), answer(b'{"result": [["ADMIN"]]}')
    cut = len(everybody_may) - kept_back
    answered, sent = asyncio.Event(), asyncio.Event()

    async def one_too_many(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await double.read_question(reader)
        writer.write(nobody_may + (b"" if gap else everybody_may[:cut]))
        await answered.wait()
        writer.write(everybody_may[:cut] if gap else b"")
        sent.set()
        await double.read_question(reader)
        writer.write(everybody_may[cut:] or everybody_may)

    double = Double(one_too_many)

    async def scene() -> None:
        async with double.running() as opa:
            for _ in range(3):
                answered.clear()
                sent.clear()
                assert await opa.rights(ana(), [ORDERS]) == [0]
                answered.set()
                await sent.wait()
                for _ in range(5):  # turns of the loop: what was sent is there in the first or second
                    await asyncio.sleep(0.001)
        assert double.connections == 3

    uvloop.run(scene())


def test_a_caller_who_leaves_takes_the_connection_along() -> None:
    async def scene() -> None:
        arrived, gone = asyncio.Event(), asyncio.Event()

        async def never(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"}")
            arrived.set()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            gone.set()

        async with Double(never).running() as opa:
            asking = asyncio.create_task(opa.rights(ana(), [ORDERS]))
            await arrived.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            async with asyncio.timeout(30):
                await gone.wait()

    uvloop.run(scene())


def test_a_connection_is_kept_and_replaced_when_its_time_is_over() -> None:
    async def scene() -> None:
        double = kept([READ_IT] * 3)
        async with double.running() as opa:
            for _ in range(3):
                assert await opa.rights(ana(), [ORDERS]) == [READ]
            assert double.connections == 1
        closing = raw(READ_IT)  # closes after each answer without having said so
        async with closing.running() as opa:
            for _ in range(3):
                assert await opa.rights(ana(), [ORDERS]) == [READ]
        assert closing.connections == 3

    uvloop.run(scene())


def test_a_kept_connection_that_dies_while_it_is_used_is_tried_anew_once() -> None:
    """It was idle for too long, and its end crossed our question on the way."""
    seen = 0

    async def dies_at_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        while True:
            await double.read_question(reader)
            seen += 1
            if seen % 2 == 0:
                writer.transport.abort()
                return
            writer.write(READ_IT)

    double = Double(dies_at_the_second)

    async def scene() -> None:
        async with double.running() as opa:
            assert await opa.rights(ana(), [ORDERS]) == [READ]
            assert await opa.rights(ana(), [ORDERS]) == [READ]

    uvloop.run(scene())
    assert (seen, double.connections) == (3, 2)


def test_a_new_connection_that_is_reset_is_not_tried_again() -> None:
    async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await double.read_question(reader)
        writer.transport.abort()

    double = Double(resets)

    async def scene() -> None:
        async with double.running() as opa:
            with pytest.raises(ServiceUnavailable):
                await opa.rights(ana(), [ORDERS])

    uvloop.run(scene())
    assert double.connections == 1


def test_many_at_once_take_turns_over_a_bounded_number_of_connections() -> None:
    under_way, most = 0, 0

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        while True:
            await double.read_question(reader)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1
            writer.write(READ_IT)

    double = Double(patient)

    async def scene() -> None:
        async with double.running() as opa:
            assert await asyncio.gather(*(opa.rights(ana(), [ORDERS]) for _ in range(200))) == [[READ]] * 200

    uvloop.run(scene())
    assert len(double.questions) == 200
    assert 1 < most <= opa_module.MAX_CONNECTIONS


def test_the_question_is_the_one_the_docs_show() -> None:
    shown = json.loads(blocks_with(PAGE, "json")[0])
    double = kept([READ_IT])

    async def scene() -> None:
        async with double.running() as opa:
            await opa.rights(ana(), [NESTED])

    uvloop.run(scene())
    assert double.questions == [shown]
    assert double.heads[0].startswith(f"POST {DOCUMENT} HTTP/1.1\r\nHost: 127.0.0.1:".encode())
    assert b"authorization" not in double.heads[0].lower()


def test_containers_are_described_without_names_they_do_not_have() -> None:
    double = kept([answer(b'{"result": [[], [], []]}')])

    async def scene() -> None:
        async with double.running() as opa:
            assert await opa.rights(ana(), [SERVER, warehouse("w/h"), namespace("w/h", ("a.b",))]) == [0, 0, 0]

    uvloop.run(scene())
    server, home, inside = double.questions[0]["input"]["securables"]
    assert server == {
        "kind": "server",
        "path": "server",
        "within": ["server"],
        "warehouse": None,
        "namespace": [],
        "name": None,
    }
    assert (home["kind"], home["path"], home["namespace"]) == ("warehouse", "warehouse:w%2Fh", [])
    assert (inside["kind"], inside["path"], inside["namespace"]) == ("namespace", "namespace:w%2Fh/a.b", ["a.b"])
    assert inside["within"] == ["server", "warehouse:w%2Fh", "namespace:w%2Fh/a.b"]


def test_a_list_takes_one_question_for_so_many_names() -> None:
    replies = [json.dumps({"result": [["READ"]] * count}).encode() for count in (MAX_SECURABLES, 1)]
    double = kept([answer(reply) for reply in replies])

    async def scene() -> None:
        async with double.running() as opa:
            tables = [entry("default", ("sales",), str(number)) for number in range(MAX_SECURABLES + 1)]
            assert await opa.rights(ana(), tables) == [READ] * (MAX_SECURABLES + 1)
            assert await opa.rights(ana(), []) == []

    uvloop.run(scene())
    assert [len(question["input"]["securables"]) for question in double.questions] == [MAX_SECURABLES, 1]


# Settings


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/v1/data/nunatak/rights",
        "unix:///run/opa",
        "ftp://127.0.0.1/x",
        "http://opa.example.com/v1/data/nunatak/rights",
        "http://10.0.0.1/v1/data/nunatak/rights",
        "http://127.0.0.1.example.com/v1/data",
        "http://user:secret@127.0.0.1/v1/data",
        "https://opa.example.com/v1/data#x",
        "http://127.0.0.1:99999/v1/data",
        "http://[::1/v1/data",
        "http://127.0.0.1/v1/da ta",
        "http://127.0.0.1/v1/data\r\nX-Evil: 1",
        "https://" + "x" * 70 + ".example.com/",
    ],
)
def test_an_address_that_cannot_be_trusted_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        opened(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:8182/x", "http://[::1]:8182/x", "http://127.0.0.2/x", "https://opa.example.com/x?y=z"]
)
def test_https_or_this_machine_will_do(url: str) -> None:
    assert isinstance(opened(url), Opa)


def test_a_token_cannot_add_headers() -> None:
    with pytest.raises(SettingsError) as refused:
        opened("http://127.0.0.1/x", token="hush\r\nX-Evil: 1")
    assert "hush" not in str(refused.value)


def test_the_token_is_shown_nowhere() -> None:
    opa = opened("http://127.0.0.1/x", token="hush-hush")

    assert "hush-hush" not in repr(vars(opa))


def test_certificates_are_checked() -> None:
    opa = opened("https://opa.example.com/x")

    assert opa._tls is not None
    assert opa._tls.verify_mode is ssl.CERT_REQUIRED
    assert opa._tls.check_hostname
