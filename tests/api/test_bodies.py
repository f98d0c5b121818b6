"""Request bodies before they are decoded: unpacking in linear time, JSON that is cheap to decode, bounded memory."""

import asyncio
import functools
import gzip
import json
import random
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import zstandard

from nunatak.api import bodies
from nunatak.api.bodies import LARGE_BYTES, MAX_JSON_DEPTH, MAX_MEMBERS, PIECE_BYTES, Body, BodyRoom, check_json
from nunatak.api.request_limits import InFlight
from nunatak.errors import BadRequest, CatalogError, ServiceUnavailable, TooLarge

MIB = 1024 * 1024


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


# Unpacking


class CountingDecompressor:
    """zlib's, and how many bytes it was handed and handed back."""

    handed = returned = 0

    def __init__(self, wbits: int) -> None:
        self._real = zlib.decompressobj(wbits)

    def decompress(self, data: bytes, most: int) -> bytes:
        CountingDecompressor.handed += len(data)
        return self._real.decompress(data, most)

    @property
    def eof(self) -> bool:
        return self._real.eof

    @property
    def unused_data(self) -> bytes:
        CountingDecompressor.returned += len(self._real.unused_data)
        return self._real.unused_data

    @property
    def unconsumed_tail(self) -> bytes:
        return self._real.unconsumed_tail


def test_many_gzip_members_are_refused_before_much_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    made = zlib.decompressobj
    CountingDecompressor.handed = CountingDecompressor.returned = 0
    monkeypatch.setattr(zlib, "decompressobj", lambda wbits: _counting(made, wbits))
    sent = gzip.compress(b"", mtime=0) * 160_000

    with pytest.raises(BadRequest, match="more than 64 parts"):
        bodies.decompress(sent, "gzip", 8 * MIB)

    assert CountingDecompressor.handed <= MAX_MEMBERS * PIECE_BYTES + len(sent)


def _counting(made: Any, wbits: int) -> CountingDecompressor:
    found = CountingDecompressor.__new__(CountingDecompressor)
    found._real = made(wbits)
    return found


def test_a_few_members_are_one_body() -> None:
    parts = [bytes([number]) * size for number, size in enumerate([0, 1, PIECE_BYTES - 1, 200_000, 3])]

    assert bodies.decompress(b"".join(map(gzip.compress, parts)), "gzip", MIB) == b"".join(parts)
    assert bodies.decompress(b"".join(map(zstandard.compress, parts)), "zstd", MIB) == b"".join(parts)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("over", [0, 1, MIB, 64 * MIB])
def test_no_more_is_unfolded_than_allowed(encoding: str, over: int) -> None:
    sent = bodies_compressed(b"x" * (100_000 + over), encoding)
    if over:
        with pytest.raises(TooLarge):
            bodies.decompress(sent, encoding, 100_000)
    else:
        assert len(bodies.decompress(sent, encoding, 100_000)) == 100_000


def bodies_compressed(data: bytes, encoding: str) -> bytes:
    return gzip.compress(data) if encoding == "gzip" else zstandard.compress(data)


def test_many_zstd_frames_are_refused() -> None:
    with pytest.raises(BadRequest, match="more than 64 parts"):
        bodies.decompress(zstandard.compress(b"") * 100_000, "zstd", MIB)


def test_a_zstd_frame_that_demands_a_large_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True, write_content_size=False)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    sent = writer.compress(b"x" * 1000) + writer.flush()

    assert zstandard.get_frame_parameters(sent).window_size == 1 << 27
    with pytest.raises(BadRequest):
        bodies.decompress(sent, "zstd", MIB)


# JSON


def deepest(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(deepest, value.values()), default=0)
    return 1 + max(map(deepest, value), default=0) if isinstance(value, list) else 0


def grown(chance: random.Random, depth: int) -> object:
    """Something nested so deep, with brackets, quotes and backslashes in its strings."""
    text = "".join(chance.choice('[]{}"\\/a,é\n') for _ in range(chance.randrange(6)))
    if depth == 0:
        return chance.choice([text, 1, None, True])
    inner = [grown(chance, depth - 1), *(grown(chance, 0) for _ in range(chance.randrange(3)))]
    chance.shuffle(inner)
    return inner if chance.random() < 0.5 else {f"{number}{text}": each for number, each in enumerate(inner)}


@pytest.mark.parametrize("seed", range(50))
def test_depth_is_counted_as_a_decoder_would(seed: int) -> None:
    chance = random.Random(seed)
    value = grown(chance, chance.randrange(90))
    body = json.dumps(value, ensure_ascii=seed % 2 == 0, indent=chance.choice([None, 1])).encode()

    assert bodies._depth(body) == deepest(value)
    if deepest(value) > MAX_JSON_DEPTH:
        with pytest.raises(BadRequest, match="nested deeper than 64"):
            check_json(body)
    else:
        check_json(body)


@pytest.mark.parametrize(
    "body",
    [b"[" * 1_000_000, b"[]," * 3_000_000, b'"",' * 3_000_000, b'"\\\\"' * 3_000_000, b"1," * 4_000_000],
    ids=["openings", "lists", "strings", "backslashes", "numbers"],
)
def test_json_of_very_many_parts_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        check_json(b"[" + body + b"]")


def test_a_schema_of_twenty_thousand_columns_is_not_too_much() -> None:
    fields = [{"id": n, "name": f"c{n}", "type": "long", "required": False, "doc": "[, ]"} for n in range(20_000)]

    check_json(json.dumps({"schema": {"type": "struct", "fields": fields}}).encode())


# Memory


class Sender:
    """Sends a body in pieces, as many as it was asked for."""

    def __init__(self, pieces: list[bytes], *, ends: bool = True) -> None:
        self._pieces = list(pieces)
        self._ends = ends
        self.asked = 0

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        if not self._pieces and not self._ends:
            await asyncio.Event().wait()
        piece = self._pieces.pop(0) if self._pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces) or not self._ends}


def a_body(sender: Sender, room: BodyRoom, caller: str, in_flight: InFlight | None = None, **headers: str) -> Body:
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    body = Body(sender, named, room, in_flight or InFlight(10), 8 * MIB)
    body.assign_to(caller)
    return body


@in_a_loop
async def test_bodies_that_do_not_end_share_a_bounded_memory() -> None:
    room, refused = BodyRoom(4 * MIB, 2 * MIB), 0
    in_flight, running = InFlight(100), []
    for number in range(20):
        body = a_body(Sender([b"x" * 65_536] * 16, ends=False), room, f"caller{number % 4}", in_flight)
        with in_flight:
            running.append(asyncio.ensure_future(body.raw()))
            for _ in range(40):
                await asyncio.sleep(0)
        if running[-1].done():
            assert isinstance(running[-1].exception(), ServiceUnavailable)
            body.release()
            refused += 1
        assert room.bytes <= 4 * MIB

    assert refused == 16
    assert in_flight.count == -4, "those that wait for their clients are not worked on"
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@in_a_loop
async def test_what_was_taken_is_given_back() -> None:
    room = BodyRoom(4 * MIB, 2 * MIB)
    for _ in range(50):
        body = a_body(Sender([b" " * MIB]), room, "ann")
        assert len(await body.read()) == MIB
        body.release()

    assert (room.bytes, room.awaited) == (0, 0)


@in_a_loop
async def test_one_caller_does_not_use_up_the_memory_of_others() -> None:
    room = BodyRoom(4 * MIB, 2 * MIB)
    room.take("ann", 2 * MIB)

    with pytest.raises(ServiceUnavailable):
        room.take("ann", 1)
    room.take("bob", 2 * MIB)


@in_a_loop
async def test_many_that_are_begun_and_not_finished_are_refused_for_one_caller() -> None:
    room = BodyRoom(4 * MIB, 2 * MIB, total_awaited=10, caller_awaited=5)
    waiting = []
    for number in range(8):
        in_flight = InFlight(10)
        body = a_body(Sender([b"{"], ends=False), room, "ann", in_flight)
        waiting.append(asyncio.ensure_future(body.raw()))
        await asyncio.sleep(0)
        assert waiting[-1].done() == (number >= 5)

    other = asyncio.ensure_future(a_body(Sender([b"{"], ends=False), room, "bob").raw())
    await asyncio.sleep(0)
    assert not other.done()
    for task in [*waiting, other]:
        task.cancel()
    await asyncio.gather(*waiting, other, return_exceptions=True)
    assert room.awaited == 0


@in_a_loop
async def test_an_announced_body_that_is_too_large_is_not_received() -> None:
    sender = Sender([b"x"])

    with pytest.raises(TooLarge):
        await a_body(sender, BodyRoom(MIB, MIB), "ann", content_length=str(9 * MIB)).raw()
    assert sender.asked == 0


@in_a_loop
async def test_a_large_body_is_checked_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(bodies, "check_json", lambda body: seen.append(_running_loop()))

    await a_body(Sender([b" " * (LARGE_BYTES + 1)]), BodyRoom(MIB, MIB), "ann").read()
    await a_body(Sender([b" " * LARGE_BYTES]), BodyRoom(MIB, MIB), "ann").read()

    assert seen[0] is None
    assert seen[1] is not None


def _running_loop() -> object:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@in_a_loop
async def test_a_client_that_leaves_has_sent_no_body() -> None:
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    body = Body(gone, {}, BodyRoom(MIB, MIB), InFlight(1), MIB)
    with pytest.raises(CatalogError, match="client disconnected"):
        await body.raw()
