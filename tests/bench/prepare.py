"""Brings a server to the state that is measured, finds out afterwards whether it kept its word, and cleans up."""

import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

from tests.bench import content
from tests.bench.content import Head
from tests.bench.generator import Address, Answer, Driver, Slice, collect
from tests.bench.servers import Server

LARGE, LARGE_304 = "large", "large-304"
CHECKING_CLIENTS = 4


class PrepareFailed(Exception):
    """A server refused what it was to be measured with."""


@dataclass
class Subject:
    """One server with its content, and what it acknowledged so far."""

    server: Server
    address: Address
    namespace: str
    requests: dict[str, Sequence[bytes]]  # ready-made, by workload; one that is absent cannot be measured here
    heads: Sequence[Head]
    hot: list[Head]  # one table for each round
    acknowledged: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    refused: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def note(self, measured: Slice) -> None:
        for commit in measured.acknowledged:
            self.acknowledged[commit.table].add(commit.snapshot_id)
        for commit in measured.refused:
            self.refused[commit.table].add(commit.snapshot_id)
        if measured.heads:
            self.heads = measured.heads


@dataclass(frozen=True)
class Verdict:
    """What became of the commits: lost were acknowledged and are not there, applied were refused and are."""

    acknowledged: int
    lost: int
    applied: int


def prepare(drive: Driver, server: Server, *, tables: int, hot_tables: int, snapshots: int) -> Subject:
    """A fifth of the tables is loaded, the others are appended to; one more has many snapshots."""
    namespace = f"bench_{uuid.uuid4().hex[:12]}"
    address = _address_with_prefix(server.uri)
    below = f"/namespaces/{namespace}"
    _expect(
        drive(collect, address, [address.request("POST", "/namespaces", content.encode({"namespace": [namespace]}))])
    )

    names = [f"table_{n:05d}" for n in range(tables)]
    heads = _create(drive, address, below, names)
    hot = _create(drive, address, below, [f"hot_{n:03d}" for n in range(hot_tables)])
    requests = {
        **_loads(drive, address, "load", "304", [f"{below}/tables/{name}" for name in names[: tables // 5]]),
        **_large(drive, address, below, heads[0].location, snapshots),
        "list": [address.request("GET", f"{below}/tables")],
    }
    listed = len(_expect(drive(collect, address, requests["list"]))[0].json["identifiers"])
    expected = tables + hot_tables + (LARGE in requests)
    if listed != expected:
        raise PrepareFailed(f"{server.name} lists {listed} tables of {expected}")
    return Subject(server, address, namespace, requests, heads[tables // 5 :], hot)


def judge(drive: Driver, subject: Subject) -> Verdict:
    """Load every table that was appended to and walk its history."""
    names = sorted(subject.acknowledged.keys() | subject.refused.keys())
    loads = [subject.address.request("GET", f"/namespaces/{subject.namespace}/tables/{name}") for name in names]
    lost = applied = 0
    for name, answer in zip(names, drive(collect, subject.address, loads, CHECKING_CLIENTS), strict=True):
        # A table that cannot be loaded has lost all of its commits.
        found = content.snapshots_of_main(answer.json["metadata"]) if answer.status == 200 else set()
        lost += len(subject.acknowledged[name] - found)
        applied += len(subject.refused[name] & found)
    return Verdict(sum(map(len, subject.acknowledged.values())), lost, applied)


def clean_up(drive: Driver, subject: Subject) -> None:
    """Drop what was created, for a server that goes on after us; what it refuses to drop stays."""
    below = f"/namespaces/{subject.namespace}"
    listed = drive(collect, subject.address, [subject.address.request("GET", f"{below}/tables")])[0]
    names = [one["name"] for one in listed.json["identifiers"]] if listed.status == 200 else []
    drops = [subject.address.request("DELETE", f"{below}/tables/{name}?purgeRequested=true") for name in names]
    drive(collect, subject.address, [*drops, subject.address.request("DELETE", below)])


def _address_with_prefix(uri: str) -> Address:
    address = Address.of(uri)
    with urlopen(f"{uri}/v1/config", timeout=30) as answer:
        config = json.load(answer)
    prefix = {**config.get("defaults", {}), **config.get("overrides", {})}.get("prefix")
    return address if not prefix else replace(address, base=f"{address.base}/{quote(prefix, safe='')}")


def _create(drive: Driver, address: Address, below: str, names: Sequence[str]) -> list[Head]:
    bodies = [address.request("POST", f"{below}/tables", content.create_table(name)) for name in names]
    answers = _expect(drive(collect, address, bodies))
    return [content.head_of(name, answer.json["metadata"]) for name, answer in zip(names, answers, strict=True)]


def _loads(
    drive: Driver, address: Address, name: str, name_304: str, paths: Sequence[str]
) -> dict[str, Sequence[bytes]]:
    """Loads, and the same by a client that has the answer already if the server gives ETags."""
    loads = [address.request("GET", path) for path in paths]
    tags = [answer.etag for answer in _expect(drive(collect, address, loads))]
    if None in tags:
        return {name: loads}
    return {
        name: loads,
        name_304: [address.request("GET", path, etag=tag) for path, tag in zip(paths, tags, strict=True)],
    }


def _large(drive: Driver, address: Address, below: str, neighbour: str, snapshots: int) -> dict[str, Sequence[bytes]]:
    """Register a table with many snapshots; nothing if this process cannot write where the server's tables lie."""
    table_uuid = str(uuid.uuid4())
    location = f"{neighbour.rpartition('/')[0]}/{LARGE}-{table_uuid}"
    folder = Path(location.removeprefix("file://").removeprefix("file:"))
    if not (folder.is_absolute() and os.access(folder.parent, os.W_OK)):
        return {}
    file = folder / "metadata" / f"00000-{uuid.uuid4()}.metadata.json"
    file.parent.mkdir(parents=True)
    now_ms = time.time_ns() // 1_000_000
    file.write_bytes(content.metadata_with_snapshots(location, table_uuid, snapshots, now_ms))
    body = {"name": LARGE, "metadata-location": f"{location}/metadata/{file.name}"}
    _expect(drive(collect, address, [address.request("POST", f"{below}/register", content.encode(body))]))
    return _loads(drive, address, LARGE, LARGE_304, [f"{below}/tables/{LARGE}"])


def _expect(answers: Sequence[Answer]) -> Sequence[Answer]:
    for answer in answers:
        if answer.status != 200:
            raise PrepareFailed(f"answered {answer.status}: {answer.body[:500].decode(errors='replace')}")
    return answers
