"""Whatever a client asks for, in whatever order: the server answers and holds what a pure model says (F12)."""

import contextlib
import itertools
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from nunatak.catalog import commits
from nunatak.catalog.table_locks import TableLocks
from nunatak.database import bindings
from nunatak.database.records import Change, MovePointer, RenamePointer
from nunatak.database.sqlite import SqliteStore
from nunatak.database.sqlite_writer import Writer
from nunatak.iceberg import requirements, updates
from tests.support.model import Answer, Divergence, Entry, Kind, Model, Name, Namespace, Request, is_name
from tests.support.model_servers import MOMENT, ModelServers, database_of, in_memory
from tests.support.promises import show
from tests.support.workload import seeded

STEPS = int(os.environ.get("NUNATAK_TEST_STEPS", "0"))  # a soak's; a database behind a socket gets a tenth
LIFE = 50  # steps of one catalog, from its birth to the last look at it

NAMESPACES: tuple[Namespace, ...] = (("n",), ("m",), ("n", "x"), ("n", "x", "y"), ("n.x",), ("N", "x"))
NAMES = ("a", "b", "c é/%1F", "A")
PLACES = ("/custom/p", "/custom/p/q", "/custom/r", "-outside")  # behind the warehouse's own location
PROPERTIES = ("p", "q", "write.metadata.previous-versions-max", "uuid")
BRANCHES = ("main", "audit", "release")
FIELDS = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 2, "name": "data", "type": "string", "required": False},
]
NO_UUID = "00000000-0000-4000-8000-000000000000"
KINDS: tuple[Kind, Kind] = ("table", "view")
SCHEMA = {"type": "struct", "schema-id": 0, "fields": FIELDS}

MOST_STEPS_TO_FIND_A_MISTAKE = 6000  # most are found within a hundred

Json = dict[str, Any]


COMMON_CHANGES = (*["append"] * 4, "set", "set", "unset", "add-column", "partition", "sort", "branch", "same-uuid")
CHANGES = (
    *COMMON_CHANGES, "stage-snapshot", "append-again", "append-late", "append-stale", "tag", "roll-back", "unknown-ref",
    "remove-ref", "remove-snapshot", "old-schema", "unknown-schema", "remove-schema", "old-spec", "remove-spec",
    "old-order", "move", "other-uuid", "upgrade", "statistics", "no-statistics",
)  # fmt: skip
VIEW_CHANGES = (*["version"] * 4, "set", "unset", "current", "move", "uuid", "dialects")
REQUIREMENTS = ("uuid", "ref", "schema", "field", "spec", "partition", "order")
STEPS_BY_WEIGHT = {
    "create_namespace": 5, "update_namespace": 3, "drop_namespace": 3, "look_at_namespace": 3,
    "create_table": 6, "stage_table": 3, "commit_staged": 4, "commit": 30, "commit_transaction": 8, "drop_table": 4,
    "unregister_table": 1, "register": 5, "rename": 6, "look": 6,
    "create_view": 4, "replace_view": 8, "drop_view": 2,
    "send_again": 6, "time_passes": 5, "restart": 1, "race": 10,
}  # fmt: skip
# What may run at the same time; a purge does its work later, so that no order is its own.
RACERS = (
    *["commit"] * 14, "create_table", "create_table", "unregister_table", "rename", "rename", "create_view",
    "replace_view", "drop_view", "create_namespace", "update_namespace", "drop_namespace",
)  # fmt: skip


class CatalogMachine(RuleBasedStateMachine):
    """One catalog's life: each rule is one request, sent to the server and judged by the model."""

    servers: ClassVar[ModelServers]

    def __init__(self) -> None:
        super().__init__()
        self.model = self.servers.new_warehouse()
        if not self.servers.divergences:
            # Hypothesis tries much that is alike; every catalog shall be another, until there is one to be repeated.
            self.servers.salt = f"{self.servers.seed}/{self.servers.warehouse}"
        self.sent: list[Request] = []
        self.diverged = False
        self.seen: Counter[int] = Counter()
        self.racing: list[Request] | None = None
        self.staged: list[tuple[Name, Json]] = []
        self.numbers = itertools.count(1001)
        self.chance = random.Random(0)

    @rule(number=st.integers(0, 255))
    def step(self, number: int) -> None:
        """One draw for all choices of a step: quick, and a run that fails is shortened step by step."""
        self.seen[number] += 1
        self.chance = random.Random(f"{self.servers.salt}/{number}/{self.seen[number]}")
        (name,) = self.chance.choices(list(STEPS_BY_WEIGHT), list(STEPS_BY_WEIGHT.values()))
        with self.noting_divergence():
            getattr(self, name)()

    @contextmanager
    def noting_divergence(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            self.diverged = True
            self.servers.divergences.append(str(error))
            print(*self.sent, sep="\n")
            raise

    # Sending

    def ask(self, request: Request, *, again: bool = False) -> Answer:
        if not again and self.chance.random() < 0.25:
            request = replace(request, key=self.key())
        if self.racing is not None:
            self.racing.append(request)
            return Answer(0)
        # A second server must see what the first one did, whatever it remembers itself.
        self.servers.steps += 1
        steps = self.servers.steps
        self.sent.append(request)
        before = set(self.model.entries)
        answer = self.servers.send(request, steps)
        self.model.judge(request, answer)
        self.servers.work_off_jobs()
        for name in self.model.touched:
            self.look_at(name, steps + 1)
        for name in before ^ set(self.model.entries):
            self.look_around(name, steps + 1)
        return answer

    def look_at(self, name: Name, which: int) -> None:
        entry = self.model.entries.get(name)
        if entry is not None:
            self.model.check_loaded(name, self.servers.send(Request(load_of(entry.kind), name), which))

    def look_around(self, name: Name, which: int) -> None:
        """The lists it belongs into, and that it is nothing else."""
        entry = self.model.entries.get(name)
        for kind in KINDS:
            if entry is None or entry.kind != kind:
                assert self.servers.send(Request(load_of(kind), name), which).status == 404, name
            self.look_at_list(name[0], kind, which)

    def look_at_list(self, levels: Namespace, kind: Kind, which: int, size: int | None = None) -> None:
        operation = "listTables" if kind == "table" else "listViews"
        found = [each["name"] for each in self.pages(Request(operation, levels), "identifiers", which, size)]
        if found != self.model.names(levels, kind):
            raise Divergence(f"{kind}s of {levels} are {found}, expected {self.model.names(levels, kind)}")

    def look_at_children(self, parent: Namespace, which: int, size: int | None = None) -> None:
        below = f"parent={'%1F'.join(quote(level, safe='') for level in parent)}" if parent else ""
        request = Request("listNamespaces", query=below)
        found = [tuple(each) for each in self.pages(request, "namespaces", which, size)]
        if len(found) != len(set(found)) or set(found) != set(self.model.children(parent)):
            raise Divergence(f"{parent} has the children {found}, expected {self.model.children(parent)}")

    def pages(self, request: Request, field: str, which: int, size: int | None) -> list[Any]:
        """All pages of a list; one that does not exist is an empty list."""
        found: list[Any] = []
        query = request.query + (f"&pageSize={size}" if size is not None else "")
        for _ in range(100):
            answer = self.servers.send(replace(request, query=query), which)
            if answer.status == 404 and answer.kind == "NoSuchNamespaceException":
                return found
            assert answer.status == 200, answer
            page = answer.body[field]
            assert size is None or len(page) <= size, answer
            found += page
            token = answer.body.get("next-page-token")
            if token is None:
                return found
            assert len(page) == size, answer
            query = f"{request.query}&pageSize={size}&pageToken={token}"
        raise AssertionError("the pages do not end")

    # Choosing

    def key(self) -> str:
        """Mostly a new one; now and then one that was used for something else."""
        used = [request.key for request in self.sent if request.key is not None]
        if used and self.chance.random() < 0.2:
            return self.chance.choice(used)
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.servers.warehouse} {next(self.numbers)}"))

    def levels(self) -> Namespace:
        """A namespace that is there, or now and then any."""
        there = sorted(self.model.namespaces)
        return self.chance.choice(there) if there and self.chance.random() < 0.8 else self.chance.choice(NAMESPACES)

    def name(self) -> Name:
        return self.levels(), self.chance.choice(NAMES)

    def existing(self, kind: Kind) -> Name:
        """An entry that is there, or now and then any name; in a race mostly the one that the other is after."""
        if self.racing and self.chance.random() < 0.7 and is_name(self.racing[0].target):
            return self.racing[0].target  # type: ignore[return-value]
        there = sorted(each for each, entry in self.model.entries.items() if entry.kind == kind)
        return self.chance.choice(there) if there and self.chance.random() < 0.9 else self.name()

    def kind(self) -> Kind:
        return self.chance.choice(KINDS)

    def place(self) -> str | None:
        """A folder of the client's choice, or mostly none."""
        return f"{self.model.root}{self.chance.choice(PLACES)}" if self.chance.random() < 0.3 else None

    def properties(self) -> dict[str, str]:
        return {self.chance.choice(PROPERTIES): self.chance.choice("123") for _ in range(self.chance.randint(0, 2))}

    @initialize()
    def begin(self) -> None:
        for levels in NAMESPACES[:2]:
            self.ask(Request("createNamespace", body={"namespace": list(levels), "properties": {}}))
        self.ask(Request("createTable", ("n",), a_table("a", {}, None)))
        self.ask(Request("createTable", ("n",), a_table("b", {"format-version": "3"}, None)))
        self.ask(Request("createView", ("m",), a_view("b", 0, {}, None)))

    # Namespaces

    def create_namespace(self) -> None:
        given = self.properties()
        if self.chance.random() < 0.2:
            given["location"] = f"{self.model.root}/of-namespace"
        body = {"namespace": list(self.chance.choice(NAMESPACES)), "properties": given}
        self.ask(Request("createNamespace", body=body))

    def update_namespace(self) -> None:
        body = {"updates": self.properties(), "removals": sorted(self.properties())}
        self.ask(Request("updateProperties", self.levels(), body))

    def drop_namespace(self) -> None:
        self.ask(Request("dropNamespace", self.levels()))

    def look_at_namespace(self) -> None:
        levels, size = self.levels(), self.chance.randint(1, 3)
        self.ask(Request("loadNamespaceMetadata", levels), again=True)
        self.ask(Request("namespaceExists", levels), again=True)
        self.look_at_children((), self.servers.steps, size)
        self.look_at_children(levels, self.servers.steps, size)
        for kind in KINDS:
            self.look_at_list(levels, kind, self.servers.steps, size)

    # Tables

    def create_table(self) -> None:
        levels, short = self.name()
        given = self.properties() | {"format-version": self.chance.choice("23")}
        self.ask(Request("createTable", levels, a_table(short, given, self.place())))

    def stage_table(self) -> None:
        levels, short = self.name()
        body = a_table(short, self.properties(), self.place()) | {"stage-create": True}
        answer = self.ask(Request("createTable", levels, body))
        if answer.status == 200 and "metadata-location" not in answer.body:
            self.staged.append(((levels, short), answer.body["metadata"]))

    def commit_staged(self) -> None:
        if not self.staged:
            return
        name, metadata = self.chance.choice(self.staged[-3:])
        updates = creation(metadata)
        if self.chance.random() < 0.5:
            updates += self.append("append", metadata, 7)
        body = {"requirements": [{"type": "assert-create"}], "updates": updates}
        self.ask(Request("updateTable", self.name() if self.chance.random() < 0.1 else name, body))

    def commit(self) -> None:
        target = self.existing("table")
        self.ask(Request("updateTable", target, self.a_commit(target)))

    def commit_transaction(self) -> None:
        body = []
        for _ in range(self.chance.randint(1, 3)):
            target = self.existing("table")
            body.append({"identifier": identifier(target), **self.a_commit(target)})
        if self.staged and self.chance.random() < 0.3:
            name, metadata = self.staged[-1]
            created = {"requirements": [{"type": "assert-create"}], "updates": creation(metadata)}
            body.append({"identifier": identifier(name), **created})
        self.ask(Request("commitTransaction", body={"table-changes": body}))

    def a_commit(self, name: Name) -> Json:
        """Some changes; most of what it requires holds."""
        entry = self.model.entries.get(name)
        metadata = entry.metadata if entry is not None and entry.kind == "table" else None
        likely = CHANGES if self.chance.random() < 0.4 else COMMON_CHANGES
        wanted = self.chance.choices(likely, k=self.chance.choice([1, 1, 2, 3]))
        required = self.chance.sample(REQUIREMENTS, self.chance.choice([0, 1, 2]))
        return {
            "requirements": [requirement(each, self.chance.random() < 0.92, metadata) for each in required],
            "updates": [update for each in wanted for update in self.changed_by(each, metadata)],
        }

    def changed_by(self, what: str, metadata: Json | None) -> list[Json]:
        """A change as a client makes it from the metadata it has read; None stands for a table that is not there."""
        pick = self.chance.randrange(12)
        table = metadata or {"refs": {}, "snapshots": [], "schemas": [SCHEMA], "table-uuid": "0" * 8, "location": "?"}
        known = [each["snapshot-id"] for each in table["snapshots"]]
        some = known[pick % len(known)] if known else 7
        branch = BRANCHES[pick % 3]
        match what:
            case "append" | "stage-snapshot" | "append-late" | "append-stale" | "append-again":
                return self.append(what, table, some)
            case "branch" | "tag":
                return [set_ref(branch, some, what)]
            case "roll-back":
                return [set_ref("main", some)]
            case "unknown-ref":
                return [set_ref(branch, 7)]
            case "remove-ref":
                return [{"action": "remove-snapshot-ref", "ref-name": branch}]
            case "remove-snapshot":
                return [{"action": "remove-snapshots", "snapshot-ids": [some]}]
            case "set":
                return [{"action": "set-properties", "updates": {PROPERTIES[pick % 4]: str(pick % 3 + 1)}}]
            case "unset":
                there = [name for name in PROPERTIES if name in table.get("properties", ())] or PROPERTIES
                return [{"action": "remove-properties", "removals": [self.chance.choice(there)]}]
            case "add-column":
                current = table["schemas"][-1]["fields"]
                column = {"id": table.get("last-column-id", 2) + 1, "type": "int", "required": False}
                fields = [*current, column | {"name": f"c{next(self.numbers)}"}]
                return [add_schema(fields), {"action": "set-current-schema", "schema-id": -1}]
            case "old-schema":
                return [add_schema(table["schemas"][0]["fields"]), {"action": "set-current-schema", "schema-id": 0}]
            case "unknown-schema":
                return [{"action": "set-current-schema", "schema-id": pick - 1}]
            case "remove-schema":
                return [{"action": "remove-schemas", "schema-ids": [pick % 3]}]
            case "partition":
                field = {"name": f"part{pick}", "transform": "identity", "source-id": pick % 4 + 1}
                return [
                    {"action": "add-spec", "spec": {"spec-id": 0, "fields": [field]}},
                    {"action": "set-default-spec", "spec-id": -1},
                ]
            case "old-spec":
                return [{"action": "set-default-spec", "spec-id": pick % 4}]
            case "remove-spec":
                return [{"action": "remove-partition-specs", "spec-ids": [pick % 3]}]
            case "sort":
                field = {"transform": "identity", "source-id": pick % 4 + 1, "null-order": "nulls-first"}
                return [
                    {
                        "action": "add-sort-order",
                        "sort-order": {"order-id": 1, "fields": [field | {"direction": "asc"}]},
                    },
                    {"action": "set-default-sort-order", "sort-order-id": -1},
                ]
            case "old-order":
                return [{"action": "set-default-sort-order", "sort-order-id": pick % 3}]
            case "move":
                location = self.place() or f"{self.model.root}/moved-{next(self.numbers)}"
                return [{"action": "set-location", "location": location}]
            case "same-uuid":
                return [{"action": "assign-uuid", "uuid": table["table-uuid"]}]
            case "other-uuid":
                return [{"action": "assign-uuid", "uuid": NO_UUID}]
            case "upgrade":
                return [{"action": "upgrade-format-version", "format-version": pick % 3 + 2}]
            case "statistics":
                file = {"snapshot-id": some, "statistics-path": f"file:///elsewhere/{pick}", "file-size-in-bytes": pick}
                return [
                    {
                        "action": "set-statistics",
                        "statistics": file | {"file-footer-size-in-bytes": 1, "blob-metadata": []},
                    }
                ]
            case "no-statistics":
                return [{"action": "remove-statistics", "snapshot-id": some}]
        raise AssertionError(what)

    def append(self, what: str, table: Json, some: int) -> list[Json]:
        """A snapshot on top of main; or one that is there already, made at another time, or based on the past."""
        pick = self.chance.randrange(12)
        snapshot_id = some if what == "append-again" else next(self.numbers)
        main = table["refs"].get("main", {}).get("snapshot-id")
        number = table.get("last-sequence-number", 0) + (0 if what == "append-stale" else 1)
        shift_ms = {"append-late": (pick - 6) * 25_000}.get(what, 0)
        parent = main if main is not None else some
        snapshot = {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent,
            "sequence-number": number,
            "timestamp-ms": self.servers.now_ms + shift_ms,
            "manifest-list": f"{table['location']}/metadata/snap-{snapshot_id}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        if table.get("format-version") == 3 and pick > 0:
            first = table["next-row-id"] + (pick % 3) - (1 if what == "append-stale" else 0)
            snapshot |= {"first-row-id": max(0, first), "added-rows": pick}
        added = [{"action": "add-snapshot", "snapshot": snapshot}]
        return added if what == "stage-snapshot" else [*added, set_ref("main", snapshot_id)]

    def drop_table(self) -> None:
        query = self.chance.choice(["", "purgeRequested=true"])
        self.ask(Request("dropTable", self.existing("table"), query=query))

    def unregister_table(self) -> None:
        self.ask(Request("unregisterTable", self.existing("table")))

    def register(self) -> None:
        """Any file that was ever answered, also one that is gone."""
        (levels, short), kind = self.name(), self.kind()
        location = self.chance.choice([*self.model.etags, "file:///elsewhere/0.metadata.json"])
        body: Json = {"name": short, "metadata-location": location}
        if kind == "table":
            body["overwrite"] = self.chance.random() < 0.5
        self.ask(Request("registerTable" if kind == "table" else "registerView", levels, body))

    def rename(self) -> None:
        kind = self.kind()
        body = {"source": identifier(self.existing(kind)), "destination": identifier(self.name())}
        self.ask(Request("renameTable" if kind == "table" else "renameView", body=body))

    def look(self) -> None:
        kind = self.kind()
        target = self.existing(kind)
        self.ask(Request(load_of(kind), target), again=True)
        self.ask(Request("tableExists" if kind == "table" else "viewExists", target), again=True)
        entry = self.model.entries.get(target)
        if entry is not None:
            self.look_conditionally(target, entry)

    def look_conditionally(self, name: Name, entry: Entry) -> None:
        """304 for the ETag of what is there, and for no other."""
        current = self.model.etags[str(entry.metadata_location)]
        for etag in [*list(self.model.etags.values())[-3:], current]:
            answer = self.servers.send(Request(load_of(entry.kind), name), self.servers.steps, match=etag)
            assert answer.status == (304 if etag == current else 200), (name, etag, current, answer.status)

    # Views

    def create_view(self) -> None:
        levels, short = self.name()
        self.ask(
            Request("createView", levels, a_view(short, self.chance.randrange(6), self.properties(), self.place()))
        )

    def replace_view(self) -> None:
        target = self.existing("view")
        entry = self.model.entries.get(target)
        known = str(entry.uuid) if entry is not None else "?"
        asserted = self.chance.choice([[], [known], [known], [known], [NO_UUID]])
        wanted = self.chance.choices(VIEW_CHANGES, k=self.chance.choice([1, 1, 2, 3]))
        body = {
            "requirements": [{"type": "assert-view-uuid", "uuid": each} for each in asserted],
            "updates": [update for each in wanted for update in self.view_changed_by(each, known)],
        }
        self.ask(Request("replaceView", target, body))

    def view_changed_by(self, what: str, known: str) -> list[Json]:
        pick = self.chance.randrange(12)
        match what:
            case "version":
                return [
                    {"action": "add-view-version", "view-version": a_version(pick, self.servers.now_ms)},
                    {"action": "set-current-view-version", "view-version-id": -1},
                ]
            case "set":
                return [{"action": "set-properties", "updates": {PROPERTIES[pick % 2]: str(pick)}}]
            case "dialects":
                return [{"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}}]
            case "unset":
                return [{"action": "remove-properties", "removals": [PROPERTIES[pick % 2]]}]
            case "current":
                return [{"action": "set-current-view-version", "view-version-id": pick - 1}]
            case "move":
                return [{"action": "set-location", "location": self.place() or f"{self.model.root}/{known}/v"}]
        return [{"action": "assign-uuid", "uuid": known}]

    def drop_view(self) -> None:
        self.ask(Request("dropView", self.existing("view")))

    # Time, and what comes again

    def send_again(self) -> None:
        """One of the last requests as it was, with its key or without."""
        self.ask(self.chance.choice(self.sent[-6:]), again=True)

    def time_passes(self) -> None:
        """Now and then backwards, as clocks do."""
        self.servers.now_ms += self.chance.choice([1, 1000, 30_000, 90_000, 3_600_000, -30_000, -90_000])
        self.model.now_ms = self.servers.now_ms

    def restart(self) -> None:
        self.servers.restart()

    def race(self) -> None:
        """Two requests at once: the outcome must be that of one after the other, in either order."""
        self.racing = []
        for _ in range(2):
            getattr(self, self.chance.choice(RACERS))()
        requests, self.racing = self.racing, None
        self.sent += requests
        self.servers.steps += 1
        answers = self.servers.send_together(requests, self.servers.steps)
        outcomes = []
        for order in itertools.permutations(zip(requests, answers, strict=True)):
            model = self.model.copy()
            try:
                for request, answer in order:
                    model.judge(request, answer)
                self.check_all(model)
            except Divergence as error:
                outcomes.append(str(error))
            else:
                self.model = model
                return
        raise Divergence(" / ".join(outcomes))

    def check_all(self, model: Model) -> None:
        self.model, before = model, self.model
        try:
            for name in list(model.entries):
                self.look_at(name, self.servers.steps)
            for levels in model.namespaces:
                for kind in KINDS:
                    self.look_at_list(levels, kind, self.servers.steps)
        finally:
            self.model = before

    def teardown(self) -> None:
        """Everything once more, and the files: all that must be there, and none besides."""
        if not self.diverged:
            with self.noting_divergence():
                self.look_at_everything()

    def look_at_everything(self) -> None:
        steps = self.servers.steps
        for name in list(self.model.entries):
            self.look_at(name, steps)
            self.look_around(name, steps)
        for levels in [(), *NAMESPACES]:
            self.look_at_children(levels, steps)
        if self.servers.files() != set(self.model.files):
            raise Divergence(f"files: {sorted(self.servers.files() ^ set(self.model.files))}")


def load_of(kind: str) -> str:
    return "loadTable" if kind == "table" else "loadView"


def identifier(name: Name) -> Json:
    return {"namespace": list(name[0]), "name": name[1]}


def a_table(name: str, given: dict[str, str], location: str | None) -> Json:
    body: Json = {"name": name, "schema": SCHEMA, "properties": given}
    return body | ({"location": location} if location is not None else {})


def a_view(name: str, number: int, given: dict[str, str], location: str | None) -> Json:
    body: Json = {"name": name, "schema": SCHEMA, "view-version": a_version(number, MOMENT), "properties": given}
    return body | ({"location": location} if location is not None else {})


def a_version(number: int, time_ms: int) -> Json:
    dialects = ("spark", "trino") if number % 3 == 0 else ("spark",)
    return {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": time_ms,
        "summary": {},
        "representations": [{"type": "sql", "sql": f"SELECT {number}", "dialect": each} for each in dialects],
        "default-namespace": ["n"],
    }


def set_ref(name: str, snapshot_id: int, kind: str = "branch") -> Json:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}


def add_schema(fields: list[Json]) -> Json:
    return {"action": "add-schema", "schema": {"type": "struct", "schema-id": 0, "fields": fields}}


def creation(metadata: Json) -> list[Json]:
    """The updates that make a staged table real, as Java's client sends them."""
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": metadata["properties"]},
    ]


def requirement(what: str, holds: bool, metadata: Json | None) -> Json:
    """A requirement that the metadata meets, or one that it misses by a little."""
    table = metadata or {}
    off = 0 if holds else 1
    main = table.get("refs", {}).get("main", {}).get("snapshot-id")
    match what:
        case "uuid":
            uuid = table.get("table-uuid") if holds else None
            return {"type": "assert-table-uuid", "uuid": uuid or NO_UUID}
        case "ref":
            return {
                "type": "assert-ref-snapshot-id",
                "ref": "main",
                "snapshot-id": main if holds else 7 if main is None else None,
            }
        case "schema":
            return {"type": "assert-current-schema-id", "current-schema-id": table.get("current-schema-id", 0) + off}
        case "field":
            return {
                "type": "assert-last-assigned-field-id",
                "last-assigned-field-id": table.get("last-column-id", 0) + off,
            }
        case "spec":
            return {"type": "assert-default-spec-id", "default-spec-id": table.get("default-spec-id", 0) + off}
        case "partition":
            return {
                "type": "assert-last-assigned-partition-id",
                "last-assigned-partition-id": table.get("last-partition-id", 0) + off,
            }
    return {
        "type": "assert-default-sort-order-id",
        "default-sort-order-id": table.get("default-sort-order-id", 0) + off,
    }


# Running


def live(servers: ModelServers, number: int, steps: int, *, shrink: bool = True) -> int:
    """Catalog after catalog until so many steps are done; returns their number."""
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    done, started, servers.seed = 0, servers.steps, number
    while servers.steps - started < steps and done < steps:
        machine = type("Catalog", (CatalogMachine,), {"servers": servers})
        examples = max(1, (steps - (servers.steps - started)) // LIFE)
        options = settings(
            max_examples=examples,
            stateful_step_count=LIFE,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        )
        run_state_machine_as_test(seed(number + done)(machine), settings=options)
        done += examples
    return done


QUICK_STEPS = {"sqlite": 1500, "postgres": 400, "mariadb": 250}


@pytest.fixture(params=QUICK_STEPS)
def backend(request: pytest.FixtureRequest) -> Iterator[tuple[str, ModelServers]]:
    """Its name and its servers: where several may share a database, two take turns."""
    name: str = request.param
    with in_memory() as folder, database_of(name) as url:
        servers = ModelServers(folder, url, servers=2 if url else 1)
        try:
            yield name, servers
        finally:
            servers.close()


@pytest.mark.timeout(max(600, STEPS // 5))
def test_the_server_does_what_the_model_does(backend: tuple[str, ModelServers]) -> None:
    name, servers = backend
    steps = (STEPS if name == "sqlite" else STEPS // 10) or QUICK_STEPS[name]
    number = seeded(f"model-{name}").getrandbits(32)
    started = time.process_time()
    catalogs = live(servers, number, steps)
    seconds = time.process_time() - started
    assert servers.steps >= steps
    show(
        "F12",
        f"{name}: the server does what a pure model does",
        steps=servers.steps,
        catalogs=catalogs,
        divergences=0,
        steps_per_cpu_second=round(servers.steps / seconds),
        seed=number,
    )


# Canaries: servers with a mistake each. Every one must be found within a quick run.

Patch = Callable[[pytest.MonkeyPatch], None]


def _requirements_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requirements, "check_all", lambda required, base: None)


def _keys_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    async def find_nothing(*_: object) -> None:
        return None

    patch.setattr(SqliteStore, "find_answer", find_nothing)


def _a_commit_sent_again_is_not_recognised(patch: pytest.MonkeyPatch) -> None:
    async def find_nothing(*_: object) -> None:
        return None

    patch.setattr(commits, "_find_applied", find_nothing)


def _a_property_cannot_be_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(updates._TableDraft, "remove_properties", lambda self, removals: None)


def _a_renamed_view_stays(patch: pytest.MonkeyPatch) -> None:
    honest = Writer._apply

    def apply(self: Writer, change: Change) -> object:
        return None if isinstance(change, RenamePointer) and change.kind == "VIEW" else honest(self, change)

    patch.setattr(Writer, "_apply", apply)


def _whoever_commits_last_wins(patch: pytest.MonkeyPatch) -> None:
    """No compare-and-swap, and no turns that would hide it."""
    honest = Writer._move_pointer

    def move(self: Writer, change: MovePointer) -> None:
        found = self._step("find_pointer", {**bindings.key_values(change.key), "known": None})
        honest(self, msgspec.structs.replace(change, expected=found.rows[0][0]) if found.rows else change)

    @asynccontextmanager
    async def take(self: TableLocks, keys: object) -> AsyncIterator[None]:
        yield

    patch.setattr(Writer, "_move_pointer", move)
    patch.setattr(TableLocks, "acquire", take)


@pytest.mark.parametrize(
    "mistake",
    [
        _requirements_are_not_checked,
        _keys_are_forgotten,
        _a_commit_sent_again_is_not_recognised,
        _a_property_cannot_be_removed,
        _a_renamed_view_stays,
        _whoever_commits_last_wins,
    ],
    ids=lambda mistake: mistake.__name__.strip("_"),
)
def test_a_server_with_a_mistake_is_found_out(mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    number = seeded(f"canary-{mistake.__name__}").getrandbits(32)
    with in_memory() as folder:
        mistake(monkeypatch)
        servers = ModelServers(folder)
        try:
            with contextlib.suppress(AssertionError, HypothesisException, ExceptionGroup):
                live(servers, number, MOST_STEPS_TO_FIND_A_MISTAKE, shrink=False)
        finally:
            servers.close()
    print(f"found after {servers.steps} steps: {servers.divergences[:1]}")
    assert servers.divergences
