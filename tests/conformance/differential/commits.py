"""Random commits to a table or a view: requirements and updates that fit its metadata, and now and then do not."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance.differential import shapes
from tests.conformance.differential.shapes import Dice
from tests.conformance.differential.world import Thing

Json = Any
OTHER_UUID = "00000000-0000-4000-8000-000000000001"
WORDS = ("red", "blue", "grün", "", "1", "true")
KEYS = (
    "owner",
    "color",
    "comment",
    "write.metadata.previous-versions-max",
    "gc.enabled",
    "history.expire.min-snapshots-to-keep",
)


class TableCommit:
    """Collects one commit; each method below is something a client does."""

    def __init__(self, rng: Dice, table: Thing, now_ms: Callable[[], int], snapshot_ids: Iterator[int]) -> None:
        self.rng = rng
        self.table = table
        self.now_ms = now_ms
        self.snapshot_ids = snapshot_ids
        self.metadata = table.metadata
        self.updates: list[Json] = []
        self.requirements: list[Json] = []
        self.schema = next(
            schema for schema in self.metadata["schemas"] if schema["schema-id"] == self.metadata["current-schema-id"]
        )

    def body(self) -> Json:
        if self.rng.random() < 0.8:
            self.require("assert-table-uuid", uuid=f"«uuid:{self.table.handle}»", wrong=OTHER_UUID)
        if self.rng.slips():
            self.add_nonsense()
        return {"requirements": self.requirements, "updates": self.updates}

    def do(self, action: str, **fields: Json) -> None:
        self.updates.append({"action": action, **{name.replace("_", "-"): value for name, value in fields.items()}})

    def require(self, kind: str, *, wrong: Json, **right: Json) -> None:
        """One assertion, which is wrong now and then."""
        name, value = next(iter(right.items()))
        chosen = wrong if self.rng.slips() else value
        self.requirements.append({"type": kind, name.replace("_", "-"): chosen})

    def change_schema(self) -> None:
        last = self.metadata["last-column-id"]
        schema = shapes.evolved_schema(self.rng, self.schema, last)
        partitions = [field["name"] for spec in self.metadata["partition-specs"] for field in spec["fields"]]
        if partitions and self.rng.random() < 0.2:
            self.rng.choice(schema["fields"])["name"] = self.rng.choice(partitions)
        self.do("add-schema", schema=schema)
        if self.rng.random() < 0.3:
            self.updates[-1]["last-column-id"] = last + self.rng.choice((0, 1, 5))
        if self.rng.random() < 0.9:
            self.do("set-current-schema", schema_id=-1 if not self.rng.slips() else 99)
        if self.rng.random() < 0.7:
            self.require("assert-last-assigned-field-id", last_assigned_field_id=last, wrong=last + 1)
        if self.rng.random() < 0.7:
            current = self.metadata["current-schema-id"]
            self.require("assert-current-schema-id", current_schema_id=current, wrong=current + 1)

    def go_back_to_a_schema(self) -> None:
        known = [schema["schema-id"] for schema in self.metadata["schemas"]]
        self.do(
            "set-current-schema",
            schema_id=self.rng.choice(known) if not self.rng.slips() else self.rng.choice((-1, 99)),
        )

    def change_spec(self) -> None:
        last = self.metadata["last-partition-id"]
        first = last + 1 if not self.rng.slips() else self.rng.choice((1000, None))
        self.do("add-spec", spec=shapes.a_spec(self.rng, self.schema, first))
        if self.rng.random() < 0.9:
            self.do("set-default-spec", spec_id=-1 if not self.rng.slips() else 99)
        if self.rng.random() < 0.7:
            self.require("assert-last-assigned-partition-id", last_assigned_partition_id=last, wrong=last + 1)
        if self.rng.random() < 0.7:
            current = self.metadata["default-spec-id"]
            self.require("assert-default-spec-id", default_spec_id=current, wrong=current + 1)

    def go_back_to_a_spec(self) -> None:
        known = [spec["spec-id"] for spec in self.metadata["partition-specs"]]
        self.do(
            "set-default-spec", spec_id=self.rng.choice(known) if not self.rng.slips() else self.rng.choice((-1, 99))
        )

    def change_sort_order(self) -> None:
        self.do("add-sort-order", sort_order=shapes.a_sort_order(self.rng, self.schema))
        if self.rng.random() < 0.9:
            self.do("set-default-sort-order", sort_order_id=-1 if not self.rng.slips() else 99)
        if self.rng.random() < 0.7:
            current = self.metadata["default-sort-order-id"]
            self.require("assert-default-sort-order-id", default_sort_order_id=current, wrong=current + 1)

    def go_back_to_a_sort_order(self) -> None:
        known = [order["order-id"] for order in self.metadata["sort-orders"]]
        chosen = self.rng.choice(known) if not self.rng.slips() else self.rng.choice((-1, 99))
        self.do("set-default-sort-order", sort_order_id=chosen)

    def append(self) -> None:
        """One snapshot, or two in one commit; made the current one, or only staged."""
        sequence, first_row = self.metadata.get("last-sequence-number", 0), self.metadata.get("next-row-id", 0)
        parent = self._current_snapshot()
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            sequence += 1
            snapshot = self._a_snapshot(sequence, first_row, parent)
            first_row += snapshot.get("added-rows", 0)
            self.do("add-snapshot", snapshot=snapshot)
            if self.rng.random() < 0.9:
                parent = snapshot["snapshot-id"]
                self.do("set-snapshot-ref", ref_name="main", type="branch", snapshot_id=parent)
        if self.rng.random() < 0.8:
            self._require_ref("main")

    def set_ref(self) -> None:
        name = self.rng.choice(("main", "audit", "release", "größe"))
        known = self._snapshot_ids()
        if not known and not self.rng.slips():
            return
        chosen = self.rng.choice(known) if known and not self.rng.slips() else 4711
        kind = self.metadata.get("refs", {}).get(name, {}).get("type") or (
            "branch" if name == "main" else self._a_ref_kind()
        )
        kind = kind if not self.rng.slips() else self._a_ref_kind()
        self.do("set-snapshot-ref", ref_name=name, type=kind, snapshot_id=chosen)
        for limit in ("max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep"):
            if self.rng.random() < 0.2 and (kind == "branch" or limit == "max-ref-age-ms" or self.rng.slips()):
                self.updates[-1][limit] = self.rng.choice((1, 10, 86400000)) if not self.rng.slips() else 0
        if self.rng.random() < 0.5:
            self._require_ref(name)

    def remove_ref(self) -> None:
        known = list(self.metadata.get("refs", {}))
        name = self.rng.choice(known) if known and not self.rng.slips() else "nobody"
        self.do("remove-snapshot-ref", ref_name=name)

    def remove_snapshots(self) -> None:
        known = self._snapshot_ids()
        chosen = self.rng.sample(known, min(len(known), self.rng.randint(1, 2))) if known else []
        if self.rng.slips():
            chosen.append(4712)
        if chosen:
            self.do("remove-snapshots", snapshot_ids=chosen)

    def set_properties(self) -> None:
        updates = {key: self.rng.choice(WORDS) for key in self.rng.sample(KEYS[:3], self.rng.randint(1, 3))}
        if self.rng.random() < 0.2:
            updates[KEYS[3]] = self.rng.choice(("1", "2", "5"))
        if self.rng.slips():
            updates["format-version"] = self.rng.choice(("2", "3", "x"))
        self.do("set-properties", updates=updates)

    def remove_properties(self) -> None:
        known = list(self.metadata.get("properties", {}))
        if known:
            self.do("remove-properties", removals=self.rng.sample([*known, "nobody"], self.rng.randint(1, 2)))

    def set_location(self) -> None:
        where = f"«root»/moved-{self.table.handle}-{self.rng.randrange(3)}"
        self.do("set-location", location=self.rng.choice((where, f"«location:{self.table.handle}»")))

    def upgrade(self) -> None:
        version = self.metadata["format-version"]
        target = self.rng.choice((version, 2, 3)) if not self.rng.slips() else self.rng.choice((0, 1, 9))
        self.do("upgrade-format-version", format_version=target)

    def assign_uuid(self) -> None:
        self.do("assign-uuid", uuid=f"«uuid:{self.table.handle}»")

    def set_statistics(self) -> None:
        snapshot = self._any_snapshot()
        blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": snapshot, "sequence-number": 1, "fields": [1]}
        if self.rng.random() < 0.5:
            blob["properties"] = {"ndv": "3"}
        self.do(
            "set-statistics",
            statistics={
                "snapshot-id": snapshot,
                "statistics-path": f"«location:{self.table.handle}»/metadata/{snapshot}.stats",
                "file-size-in-bytes": 413,
                "file-footer-size-in-bytes": 42,
                "blob-metadata": [blob],
            },
        )
        if self.rng.random() < 0.3:
            self.updates[-1]["snapshot-id"] = snapshot

    def remove_statistics(self) -> None:
        self.do("remove-statistics", snapshot_id=self._any_snapshot())

    def set_partition_statistics(self) -> None:
        snapshot = self._any_snapshot()
        path = f"«location:{self.table.handle}»/metadata/{snapshot}.parquet"
        self.do(
            "set-partition-statistics",
            partition_statistics={"snapshot-id": snapshot, "statistics-path": path, "file-size-in-bytes": 43},
        )

    def remove_partition_statistics(self) -> None:
        self.do("remove-partition-statistics", snapshot_id=self._any_snapshot())

    def remove_specs(self) -> None:
        unused = [
            s["spec-id"] for s in self.metadata["partition-specs"] if s["spec-id"] != self.metadata["default-spec-id"]
        ]
        if not unused and not self.rng.slips():
            return
        chosen = self.rng.choice(unused) if unused and not self.rng.slips() else self.metadata["default-spec-id"]
        self.do("remove-partition-specs", spec_ids=[chosen])

    def remove_schemas(self) -> None:
        unused = [
            s["schema-id"] for s in self.metadata["schemas"] if s["schema-id"] != self.metadata["current-schema-id"]
        ]
        if not unused and not self.rng.slips():
            return
        chosen = self.rng.choice(unused) if unused and not self.rng.slips() else self.metadata["current-schema-id"]
        self.do("remove-schemas", schema_ids=[chosen])

    def add_encryption_key(self) -> None:
        key = {"key-id": self.rng.choice(("k1", "k2")), "encrypted-key-metadata": "c2VjcmV0", "encrypted-by-id": "kms"}
        if self.rng.random() < 0.3:
            key["properties"] = {"a": "b"}  # type: ignore[assignment]
        self.do("add-encryption-key", encryption_key=key)

    def remove_encryption_key(self) -> None:
        self.do("remove-encryption-key", key_id=self.rng.choice(("k1", "k2", "nobody")))

    def add_nonsense(self) -> None:
        nonsense: list[Json] = [
            {"action": "explode"},
            {"action": "set-properties"},
            {"action": "set-current-schema"},
            {"action": "set-current-schema", "schema-id": "zero"},
            {"action": "add-snapshot", "snapshot": {"snapshot-id": 1}},
            {"action": "assign-uuid", "uuid": OTHER_UUID},
            {"action": "assign-uuid"},
            {"action": "set-location", "location": None},
            {"action": "add-view-version", "view-version": {}},
            {"no-action": True},
            7,
        ]
        unmet: list[Json] = [
            {"type": "assert-nothing"},
            {"type": "assert-table-uuid"},
            {"type": "assert-ref-snapshot-id", "ref": "nobody", "snapshot-id": 4711},
            {"type": "assert-view-uuid", "uuid": OTHER_UUID},
            {"type": "assert-create"},
            {},
        ]
        if self.rng.random() < 0.6:
            self.updates.insert(self.rng.randint(0, len(self.updates)), self.rng.choice(nonsense))
        else:
            self.requirements.insert(0, self.rng.choice(unmet))

    def _a_snapshot(self, sequence: int, first_row: int, parent: int | None) -> Json:
        identity = next(self.snapshot_ids) if not self.rng.slips() else (self._snapshot_ids() or [4711])[0]
        snapshot: Json = {
            "snapshot-id": identity,
            "timestamp-ms": self.now_ms(),
            "summary": {"operation": self.rng.choice(("append", "overwrite")), "added-records": "3"},
            "manifest-list": f"«location:{self.table.handle}»/metadata/snap-{identity}.avro",
            "schema-id": self.metadata["current-schema-id"],
        }
        if parent is not None and self.rng.random() < 0.9:
            snapshot["parent-snapshot-id"] = parent
        if self.metadata["format-version"] > 1:
            snapshot["sequence-number"] = (
                sequence if not self.rng.slips() else self.rng.choice((0, sequence - 1, sequence + 7))
            )
        if self.metadata["format-version"] > 2:
            snapshot |= {"first-row-id": first_row, "added-rows": 3}
            if self.rng.slips():
                snapshot["first-row-id"] = max(0, first_row - 1)
            if self.rng.slips():
                del snapshot["first-row-id"]
        return snapshot

    def _require_ref(self, name: str) -> None:
        held = self.metadata.get("refs", {}).get(name, {}).get("snapshot-id")
        self.require("assert-ref-snapshot-id", snapshot_id=held, wrong=4711)
        self.requirements[-1]["ref"] = name

    def _snapshot_ids(self) -> list[int]:
        return [snapshot["snapshot-id"] for snapshot in self.metadata.get("snapshots") or []]

    def _any_snapshot(self) -> int:
        known = self._snapshot_ids()
        return self.rng.choice(known) if known and not self.rng.slips() else 4711

    def _current_snapshot(self) -> int | None:
        current = self.metadata.get("current-snapshot-id")
        return current if isinstance(current, int) and current >= 0 else None

    def _a_ref_kind(self) -> str:
        return self.rng.choice(("branch", "tag"))


# What commits are made of, and how often.
TABLE_CHANGES: dict[Callable[[TableCommit], None], int] = {
    TableCommit.append: 8,
    TableCommit.change_schema: 4,
    TableCommit.go_back_to_a_schema: 1,
    TableCommit.change_spec: 3,
    TableCommit.go_back_to_a_spec: 1,
    TableCommit.change_sort_order: 3,
    TableCommit.go_back_to_a_sort_order: 1,
    TableCommit.set_ref: 4,
    TableCommit.remove_ref: 1,
    TableCommit.remove_snapshots: 2,
    TableCommit.set_properties: 3,
    TableCommit.remove_properties: 1,
    TableCommit.set_location: 1,
    TableCommit.upgrade: 1,
    TableCommit.assign_uuid: 1,
    TableCommit.set_statistics: 1,
    TableCommit.remove_statistics: 1,
    TableCommit.set_partition_statistics: 1,
    TableCommit.remove_partition_statistics: 1,
    TableCommit.remove_specs: 1,
    TableCommit.remove_schemas: 1,
    TableCommit.add_encryption_key: 1,
    TableCommit.remove_encryption_key: 1,
}


def table_commit(rng: Dice, table: Thing, now_ms: Callable[[], int], snapshot_ids: Iterator[int]) -> Json:
    commit = TableCommit(rng, table, now_ms, snapshot_ids)
    changes = rng.choices(list(TABLE_CHANGES), weights=list(TABLE_CHANGES.values()), k=rng.choice((1, 1, 1, 2, 3)))
    for change in dict.fromkeys(changes):
        change(commit)
    if not commit.updates and not rng.slips():
        commit.append()  # there was nothing to do of the kind chosen
    return commit.body()


def create_commit(rng: Dice, staged: Thing) -> Json:
    """What a client sends to create the table that was staged, in the order the Java client uses."""
    metadata = staged.metadata
    schema = metadata["schemas"][0]
    updates: list[Json] = [
        {"action": "assign-uuid", "uuid": f"«uuid:{staged.handle}»"},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": schema, "last-column-id": metadata["last-column-id"]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": f"«location:{staged.handle}»"},
        {
            "action": "set-properties",
            "updates": {**metadata.get("properties", {}), "created-at": "2022-02-25T00:38:19"},
        },
    ]
    if rng.slips():
        # Without a location the reference writes to a folder called null, for minutes.
        del updates[rng.choice((0, 2, 3, 4, 5, 6, 7, 9))]
    requirements: list[Json] = [{"type": "assert-create"}]
    if rng.slips():
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": 0})
    return {"requirements": requirements, "updates": updates}


def a_view_version(
    rng: Dice, namespace: tuple[str, ...], now_ms: Callable[[], int], schema_id: int, kept: tuple[str, ...] = ()
) -> Json:
    dialects = list(kept) or rng.sample(("spark", "trino", "duckdb"), rng.choice((1, 1, 2)))
    if rng.slips():
        dialects.append(dialects[0].upper())
    version: Json = {
        "version-id": rng.choice((1, 1, 2, 7)),
        "timestamp-ms": now_ms(),
        "schema-id": schema_id,
        "summary": {"engine-name": "differential"},
        "representations": [
            {"type": "sql", "sql": f"SELECT {rng.randrange(5)} AS n", "dialect": dialect} for dialect in dialects
        ],
        "default-namespace": list(namespace),
    }
    if rng.random() < 0.3:
        version["default-catalog"] = "prod"
    return version


def view_commit(rng: Dice, view: Thing, namespace: tuple[str, ...], now_ms: Callable[[], int]) -> Json:
    metadata = view.metadata
    updates: list[Json] = []
    match rng.randrange(9):
        case 0 | 1 | 2 | 3:
            fresh = rng.random() < 0.5
            if fresh:
                highest = max(field["id"] for field in metadata["schemas"][-1]["fields"])
                schema = shapes.evolved_schema(rng, metadata["schemas"][-1], highest)
                updates.append({"action": "add-schema", "schema": schema, "last-column-id": highest + 9})
            schema_id = -1 if fresh else metadata["schemas"][-1]["schema-id"]
            if rng.slips():
                schema_id = rng.choice((-1, 99))
            # A version that lacks a dialect of the current one is refused, unless a property allows it.
            kept = (
                tuple(part["dialect"] for part in metadata["versions"][-1]["representations"])
                if rng.random() < 0.8
                else ()
            )
            version = a_view_version(rng, namespace, now_ms, schema_id, kept)
            version["summary"] = {"attempt": str(rng.randrange(3))}  # a version that is there already is found again
            updates.append({"action": "add-view-version", "view-version": version})
            updates.append({"action": "set-current-view-version", "view-version-id": -1 if not rng.slips() else 99})
        case 4:
            known = [version["version-id"] for version in metadata["versions"]]
            chosen = rng.choice(known) if not rng.slips() else 99
            updates.append({"action": "set-current-view-version", "view-version-id": chosen})
        case 5:
            changed = {rng.choice(("comment", "owner")): rng.choice(WORDS)}
            if rng.random() < 0.2:
                changed["replace.drop-dialect.allowed"] = "true"
            if rng.random() < 0.2:
                changed["version.history.num-entries"] = rng.choice(("1", "3"))
            updates.append({"action": "set-properties", "updates": changed})
        case 6:
            updates.append({"action": "remove-properties", "removals": rng.sample(("comment", "owner", "nobody"), 2)})
        case 7:
            updates.append({"action": "set-location", "location": f"«root»/moved-{view.handle}-{rng.randrange(3)}"})
        case _:
            choices: list[Json] = [
                {"action": "assign-uuid", "uuid": f"«uuid:{view.handle}»"},
                {"action": "upgrade-format-version", "format-version": 1},
                {"action": "upgrade-format-version", "format-version": 2},
                {"action": "add-snapshot", "snapshot": {"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": "x"}},
                {"action": "explode"},
                {"action": "assign-uuid", "uuid": OTHER_UUID},
            ]
            updates.append(rng.choice(choices))
    requirements: list[Json] = []
    if rng.random() < 0.8:
        right = f"«uuid:{view.handle}»"
        requirements.append({"type": "assert-view-uuid", "uuid": right if not rng.slips() else OTHER_UUID})
    if rng.slips():
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": 0})
    return {"requirements": requirements, "updates": updates}
