"""What a commit does to a table's or a view's metadata, said a second time in plain dictionaries for the model.

Covers what the state machine sends (format versions 2 and 3, specs and orders of one field); shares no code with the
server, so that a mistake would have to be made twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

Json = dict[str, Any]

CLOCK_TOLERANCE_MS = 60_000
RESERVED = {"format-version", "uuid"}
VERSIONS_KEPT = 10


class Refused(Exception):
    """The answer is an error; the model is as it was."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__(f"{status} {kind}")
        self.status = status
        self.kind = kind


def illegal() -> Refused:
    return Refused(400, "IllegalArgumentException")


def invalid() -> Refused:
    return Refused(400, "ValidationException")


def conflict() -> Refused:
    return Refused(409, "CommitFailedException")


def new_table(schema: Json, properties: Mapping[str, str], location: str | None, now_ms: int) -> Json:
    """The first metadata of a table; its uuid, and its folder unless it was asked for, are the server's choice."""
    version = int(properties.get("format-version", "2"))
    kept = {name: value for name, value in properties.items() if name not in RESERVED}
    return {
        **empty_table(version, now_ms),
        "location": location,
        "last-column-id": len(schema["fields"]),
        "schemas": [schema | {"schema-id": 0}],
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"write.parquet.compression-codec": "zstd"} | kept,
    }


def empty_table(version: int, now_ms: int) -> Json:
    return {
        "format-version": version,
        "table-uuid": None,
        "location": None,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": 0,
        "current-schema-id": 0,
        "schemas": [],
        "default-spec-id": 0,
        "partition-specs": [],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [],
        "properties": {},
        "current-snapshot-id": None,
        "next-row-id": 0,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def as_written(metadata: Json) -> Json:
    """The metadata as a file holds it: version 2 has its own word for no snapshot, and no row ids."""
    if "view-uuid" in metadata:
        return metadata if metadata.get("properties") else {k: v for k, v in metadata.items() if k != "properties"}
    if metadata["format-version"] > 2:
        return metadata
    written = {name: value for name, value in metadata.items() if name != "next-row-id"}
    return written | ({"current-snapshot-id": -1} if metadata["current-snapshot-id"] is None else {})


def check_requirements(requirements: Sequence[Json], table: Json | None) -> None:
    creates = [each for each in requirements if each["type"] == "assert-create"]
    if creates and len(creates) < len(requirements):
        raise illegal()
    for each in requirements:
        if each["type"] == "assert-create":
            if table is not None:
                raise conflict()
        elif table is None or not _holds(each, table):
            raise conflict()


def _holds(requirement: Json, table: Json) -> bool:
    match requirement["type"]:
        case "assert-table-uuid":
            return bool(requirement["uuid"] == table["table-uuid"])
        case "assert-ref-snapshot-id":
            found = table["refs"].get(requirement["ref"])
            return bool(requirement["snapshot-id"] == (found["snapshot-id"] if found else None))
        case "assert-current-schema-id":
            return bool(requirement["current-schema-id"] == table["current-schema-id"])
        case "assert-last-assigned-field-id":
            return bool(requirement["last-assigned-field-id"] == table["last-column-id"])
        case "assert-default-spec-id":
            return bool(requirement["default-spec-id"] == table["default-spec-id"])
        case "assert-last-assigned-partition-id":
            return bool(requirement["last-assigned-partition-id"] == table["last-partition-id"])
        case "assert-default-sort-order-id":
            return bool(requirement["default-sort-order-id"] == table["default-sort-order-id"])
    raise AssertionError(requirement)


def change_table(base: Json | None, updates: Sequence[Json], base_location: str | None, now_ms: int) -> Json:
    """The metadata after all updates, or `base` itself if they change nothing."""
    if base is None:
        versions = [each["format-version"] for each in updates if each["action"] == "upgrade-format-version"]
        base_or_empty = empty_table((versions or [2])[0], now_ms)
    else:
        base_or_empty = base
    draft = _TableDraft(base_or_empty, now_ms if base is None else max(now_ms, base["last-updated-ms"] + 1))
    for update in updates:
        draft.apply(update)
    return draft.finish(base, base_location)


class _TableDraft:
    def __init__(self, base: Json, time_ms: int) -> None:
        self.new = dict(base)
        self.time_ms = time_ms
        self.added: dict[str, list[int]] = {"schema": [], "snapshot": []}
        self.last: dict[str, int | None] = {"schema": None, "spec": None, "order": None}
        self.made_main: list[int] = []
        self.removed = False

    def apply(self, update: Json) -> None:
        getattr(self, update["action"].replace("-", "_"))(update)

    def assign_uuid(self, update: Json) -> None:
        if self.new["table-uuid"] not in (None, update["uuid"]):
            raise illegal()
        self.new["table-uuid"] = update["uuid"]

    def upgrade_format_version(self, update: Json) -> None:
        if not self.new["format-version"] <= update["format-version"] <= 3:
            raise illegal()
        self.new["format-version"] = update["format-version"]

    def set_location(self, update: Json) -> None:
        self.new["location"] = update["location"]

    def set_properties(self, update: Json) -> None:
        kept = {name: value for name, value in update["updates"].items() if name not in RESERVED}
        self.new["properties"] = self.new["properties"] | kept

    def remove_properties(self, update: Json) -> None:
        properties = self.new["properties"]
        self.new["properties"] = {name: properties[name] for name in properties if name not in update["removals"]}

    # Schemas, specs, orders

    def add_schema(self, update: Json) -> None:
        schema = update["schema"]
        self.new["last-column-id"] = max(self.new["last-column-id"], *(field["id"] for field in schema["fields"]))
        same = [each["schema-id"] for each in self.new["schemas"] if each["fields"] == schema["fields"]]
        if same:
            usable = same[0] in self.added["schema"] and self.last["schema"] is not None
            self.last["schema"] = same[0] if usable else None
            return
        number = _next(self.new["schemas"], "schema-id", 0)
        self.new["schemas"] = [*self.new["schemas"], schema | {"schema-id": number}]
        self.added["schema"].append(number)
        self.last["schema"] = number

    def set_current_schema(self, update: Json) -> None:
        wanted = self._or_last(update["schema-id"], "schema")
        if wanted != self.new["current-schema-id"] and wanted not in _ids(self.new["schemas"], "schema-id"):
            raise illegal()
        self.new["current-schema-id"] = wanted

    def remove_schemas(self, update: Json) -> None:
        if self.new["current-schema-id"] in update["schema-ids"]:
            raise illegal()
        self.new["schemas"] = [each for each in self.new["schemas"] if each["schema-id"] not in update["schema-ids"]]

    def add_spec(self, update: Json) -> None:
        fields = [dict(field) for field in update["spec"]["fields"]]
        specs = self.new["partition-specs"]
        for field in fields:
            known = [old["field-id"] for spec in specs for old in spec["fields"] if _made_alike(old, field)]
            field["field-id"] = known[-1] if known else self.new["last-partition-id"] + 1
        self._check_spec(fields)
        same = [each["spec-id"] for each in specs if [*map(_partition, each["fields"])] == [*map(_partition, fields)]]
        if same:
            self.last["spec"] = same[0] if self.last["spec"] is not None else None
            return
        number = _next(specs, "spec-id", 0)
        self.new["partition-specs"] = [*specs, {"spec-id": number, "fields": fields}]
        self.new["last-partition-id"] = max([self.new["last-partition-id"], *(each["field-id"] for each in fields)])
        self.last["spec"] = number

    def set_default_spec(self, update: Json) -> None:
        self.new["default-spec-id"] = self._or_last(update["spec-id"], "spec")

    def remove_partition_specs(self, update: Json) -> None:
        if self.new["default-spec-id"] in update["spec-ids"]:
            raise illegal()
        kept = [each for each in self.new["partition-specs"] if each["spec-id"] not in update["spec-ids"]]
        self.new["partition-specs"] = kept

    def add_sort_order(self, update: Json) -> None:
        fields, orders = update["sort-order"]["fields"], self.new["sort-orders"]
        self._check_order(fields)
        same = [each["order-id"] for each in orders if each["fields"] == fields]
        if same:
            self.last["order"] = same[0] if self.last["order"] is not None else None
            return
        number = _next(orders, "order-id", 1) if fields else 0
        self.new["sort-orders"] = [*orders, {"order-id": number, "fields": fields}]
        self.last["order"] = number

    def set_default_sort_order(self, update: Json) -> None:
        self.new["default-sort-order-id"] = self._or_last(update["sort-order-id"], "order")

    def _or_last(self, wanted: int, what: str) -> int:
        if wanted != -1:
            return wanted
        last = self.last[what]
        if last is None:
            raise invalid()
        return last

    def _columns(self) -> list[int]:
        current = [each for each in self.new["schemas"] if each["schema-id"] == self.new["current-schema-id"]]
        if not current:
            raise invalid()
        return [field["id"] for field in current[0]["fields"]]

    def _check_spec(self, fields: Iterable[Json]) -> None:
        columns = self._columns()
        if any(field["source-id"] not in columns for field in fields):
            raise invalid()

    def _check_order(self, fields: Iterable[Json]) -> None:
        columns = self._columns()
        if any(field["source-id"] not in columns for field in fields):
            raise invalid()

    # Snapshots, references, statistics

    def add_snapshot(self, update: Json) -> None:
        snapshot = update["snapshot"]
        if not self.new["schemas"] or not self.new["partition-specs"] or not self.new["sort-orders"]:
            raise invalid()
        if snapshot["snapshot-id"] in _ids(self.new["snapshots"], "snapshot-id"):
            raise invalid()
        if snapshot["sequence-number"] <= self.new["last-sequence-number"]:
            raise conflict()
        self.new["last-sequence-number"] = snapshot["sequence-number"]
        if self.new["format-version"] == 3:
            if "first-row-id" not in snapshot:
                raise invalid()
            if snapshot["first-row-id"] < self.new["next-row-id"]:
                raise conflict()
            self.new["next-row-id"] = snapshot["first-row-id"] + snapshot["added-rows"]
        self.new["snapshots"] = [*self.new["snapshots"], snapshot]
        self.added["snapshot"].append(snapshot["snapshot-id"])

    def set_snapshot_ref(self, update: Json) -> None:
        name, snapshot_id = update["ref-name"], update["snapshot-id"]
        if name == "main" and update["type"] == "tag":
            raise invalid()
        ref = {"snapshot-id": snapshot_id, "type": update["type"]}
        if self.new["refs"].get(name) == ref:
            return
        found = [each for each in self.new["snapshots"] if each["snapshot-id"] == snapshot_id]
        if not found:
            raise invalid()
        if name == "main":
            self.new["current-snapshot-id"] = snapshot_id
            time_ms = found[0]["timestamp-ms"] if snapshot_id in self.added["snapshot"] else self.time_ms
            entry = {"timestamp-ms": time_ms, "snapshot-id": snapshot_id}
            self.new["snapshot-log"] = [*self.new["snapshot-log"], entry]
            self.made_main.append(snapshot_id)
        self.new["refs"] = self.new["refs"] | {name: ref}

    def remove_snapshot_ref(self, update: Json) -> None:
        name = update["ref-name"]
        if name == "main":
            self.new["current-snapshot-id"] = None
        self.new["refs"] = {other: ref for other, ref in self.new["refs"].items() if other != name}

    def remove_snapshots(self, update: Json) -> None:
        gone = update["snapshot-ids"]
        kept = [each for each in self.new["snapshots"] if each["snapshot-id"] not in gone]
        if len(kept) == len(self.new["snapshots"]):
            return
        self.removed = True
        self.new["snapshots"] = kept
        self.new["statistics"] = [each for each in self.new["statistics"] if each["snapshot-id"] not in gone]
        for name, ref in self.new["refs"].items():
            if ref["snapshot-id"] in gone:
                self.remove_snapshot_ref({"ref-name": name})

    def set_statistics(self, update: Json) -> None:
        added, files = update["statistics"], self.new["statistics"]
        if added["snapshot-id"] in _ids(files, "snapshot-id"):
            files = [added if each["snapshot-id"] == added["snapshot-id"] else each for each in files]
        else:
            files = [*files, added]
        self.new["statistics"] = files

    def remove_statistics(self, update: Json) -> None:
        kept = [each for each in self.new["statistics"] if each["snapshot-id"] != update["snapshot-id"]]
        self.new["statistics"] = kept

    # The end

    def finish(self, base: Json | None, base_location: str | None) -> Json:
        if base is None and not self.new["schemas"]:
            raise invalid()
        if base is None and not (self.new["partition-specs"] and self.new["sort-orders"]):
            raise illegal()
        self._check_defaults()
        self.new["snapshot-log"] = self._snapshot_log()
        if self.new == base:
            return base
        self._check_clock()
        self.new["last-updated-ms"] = self.time_ms
        if base is not None:
            most = max(1, int(self.new["properties"].get("write.metadata.previous-versions-max", "100")))
            kept = base["metadata-log"][max(0, len(base["metadata-log"]) - most + 1) :]
            entry = {"timestamp-ms": base["last-updated-ms"], "metadata-file": base_location}
            self.new["metadata-log"] = [*kept, entry]
        return self.new

    def _check_defaults(self) -> None:
        self._columns()
        spec = [each for each in self.new["partition-specs"] if each["spec-id"] == self.new["default-spec-id"]]
        if not spec:
            raise illegal()
        self._check_spec(spec[0]["fields"])
        order = [each for each in self.new["sort-orders"] if each["order-id"] == self.new["default-sort-order-id"]]
        if not order:
            raise illegal()
        self._check_order(order[0]["fields"])

    def _snapshot_log(self) -> list[Json]:
        """Without what was current only inside this commit; what lies before a removed snapshot is forgotten."""
        current = self.new["current-snapshot-id"]
        brief = {each for each in self.made_main if each in self.added["snapshot"] and each != current}
        if not brief and not self.removed:
            return list(self.new["snapshot-log"])
        there = _ids(self.new["snapshots"], "snapshot-id")
        log: list[Json] = []
        for entry in self.new["snapshot-log"]:
            if entry["snapshot-id"] not in there:
                log = [] if self.removed else log
            elif entry["snapshot-id"] not in brief:
                log.append(entry)
        if log and current is not None and log[-1]["snapshot-id"] != current:
            raise invalid()
        return log

    def _check_clock(self) -> None:
        log = self.new["snapshot-log"]
        if not self.made_main or not log:
            return
        times = [entry["timestamp-ms"] for entry in log[-len(self.made_main) - 1 :]]
        if any(after < before - CLOCK_TOLERANCE_MS for before, after in pairwise(times)):
            raise invalid()
        if self.time_ms < times[-1] - CLOCK_TOLERANCE_MS:
            raise illegal()


def _ids(items: Iterable[Json], name: str) -> list[int]:
    return [each[name] for each in items]


def _next(items: Iterable[Json], name: str, first: int) -> int:
    return max([first - 1, *_ids(items, name)]) + 1


def _partition(field: Json) -> tuple[object, ...]:
    return field["source-id"], field["transform"], field["name"]


def _made_alike(one: Json, other: Json) -> bool:
    return _partition(one)[:2] == _partition(other)[:2]


# Views


def new_view(request: Json) -> Json:
    version = request["view-version"] | {"version-id": 1, "schema-id": 0}
    return {
        "view-uuid": None,
        "format-version": 1,
        "location": request.get("location"),
        "schemas": [request["schema"] | {"schema-id": 0}],
        "current-version-id": 1,
        "versions": [version],
        "version-log": [{"timestamp-ms": version["timestamp-ms"], "version-id": 1}],
        "properties": dict(request["properties"]),
    }


def change_view(base: Json, updates: Sequence[Json], now_ms: int) -> Json:
    """The metadata after all updates, or `base` itself if they change nothing."""
    new = dict(base)
    added: list[int] = []
    last: int | None = None
    log_entry: Json | None = None
    for update in updates:
        match update["action"]:
            case "assign-uuid":
                if update["uuid"] != new["view-uuid"]:
                    raise illegal()
            case "set-location":
                new["location"] = update["location"]
            case "set-properties":
                new["properties"] = new["properties"] | update["updates"]
            case "remove-properties":
                kept = {name: text for name, text in new["properties"].items() if name not in update["removals"]}
                new["properties"] = kept
            case "add-view-version":
                last = _add_version(new, update["view-version"], added)
            case "set-current-view-version":
                wanted = last if update["view-version-id"] == -1 else update["view-version-id"]
                if wanted is None:
                    raise invalid()
                if wanted == new["current-version-id"]:
                    continue
                found = [each for each in new["versions"] if each["version-id"] == wanted]
                if not found:
                    raise illegal()
                new["current-version-id"] = wanted
                time_ms = found[0]["timestamp-ms"] if wanted in added else now_ms
                log_entry = {"timestamp-ms": time_ms, "version-id": wanted}
    if log_entry is not None:
        new["version-log"] = [*new["version-log"], log_entry]
    if new == base:
        return base
    if new["properties"].get("replace.drop-dialect.allowed") != "true" and not _dialects(base) <= _dialects(new):
        raise illegal()
    return _expire(new, added)


def _add_version(new: Json, sent: Json, added: list[int]) -> int:
    if sent["schema-id"] not in _ids(new["schemas"], "schema-id"):
        raise illegal()
    for known in new["versions"]:
        if all(known.get(name) == sent.get(name) for name in sent if name not in ("version-id", "timestamp-ms")):
            return int(known["version-id"])
    number = max(sent["version-id"], _next(new["versions"], "version-id", 1))
    new["versions"] = [*new["versions"], sent | {"version-id": number}]
    added.append(number)
    return int(number)


def _dialects(view: Json) -> set[str]:
    current = next(each for each in view["versions"] if each["version-id"] == view["current-version-id"])
    return {each["dialect"] for each in current["representations"]}


def _expire(view: Json, added: list[int]) -> Json:
    most = max(len({*added, view["current-version-id"]}), VERSIONS_KEPT)
    if len(view["versions"]) <= most:
        return view
    others = sorted(each for each in _ids(view["versions"], "version-id") if each != view["current-version-id"])
    kept = [view["current-version-id"], *others[::-1][: most - 1]]
    log: list[Json] = []
    for entry in view["version-log"]:
        log = [*log, entry] if entry["version-id"] in kept else []
    by_id = {each["version-id"]: each for each in view["versions"]}
    return view | {"versions": [by_id[number] for number in kept], "version-log": log}
