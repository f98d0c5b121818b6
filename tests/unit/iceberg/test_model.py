"""Random commits against a model so simple that it is obviously right: dicts and counters, and no metadata."""

import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nunatak.errors import CommitFailed, InvalidMetadata
from nunatak.iceberg.table_metadata import decode, encode
from tests.unit.iceberg.builders import (
    NOW_MS,
    Json,
    a_field,
    a_schema,
    a_table,
    add_snapshot,
    append,
    commit,
    requirement,
    set_ref,
    update,
)

BRANCHES = st.sampled_from(["main", "audit"])
COLUMNS = st.sampled_from(["a", "b", "c"])


@dataclass
class Model:
    """What a reader of the table can see."""

    snapshots: list[int] = field(default_factory=list)
    refs: dict[str, int] = field(default_factory=dict)
    history: list[int] = field(default_factory=list)
    columns: dict[str, int] = field(default_factory=lambda: {"id": 1, "data": 2, "ts": 3})
    schemas: list[dict[str, int]] = field(default_factory=lambda: [{"id": 1, "data": 2, "ts": 3}])
    properties: dict[str, str] = field(default_factory=lambda: {"write.parquet.compression-codec": "zstd"})
    files: list[str] = field(default_factory=list)
    last_column_id: int = 3
    appended: int = 0


class Commits(RuleBasedStateMachine):
    @initialize(version=st.sampled_from([1, 2, 3]))
    def create(self, version: int) -> None:
        self.table = a_table(version)
        self.model = Model()
        self.commits = 0

    def commit(self, changes: list[Json], *required: Json) -> None:
        before, snapshot = self.table, copy.deepcopy(self.table)
        location = f"s3://bucket/{self.commits}.metadata.json"
        self.commits += 1
        self.table = commit(before, changes, *required, location=location, now_ms=NOW_MS + self.commits % 4)
        assert before == snapshot
        if self.table is not before:
            self.model.files.append(location)
            assert self.table.last_updated_ms > before.last_updated_ms

    @rule(branch=BRANCHES)
    def append(self, branch: str) -> None:
        self.model.appended += 1
        number = self.model.appended
        expected = requirement("assert-ref-snapshot-id", ref=branch, snapshot_id=self.model.refs.get(branch))
        self.commit(append(self.table, number, branch), expected)
        self.model.snapshots.append(number)
        self.model.refs[branch] = number
        if branch == "main":
            self.model.history.append(number)

    @rule()
    def append_twice_at_once(self) -> None:
        first, second = self.model.appended + 1, self.model.appended + 2
        self.model.appended = second
        changes = append(self.table, first)
        between = commit(self.table, changes)
        self.commit([*changes, *append(between, second)])
        self.model.snapshots += [first, second]
        self.model.refs["main"] = second
        self.model.history.append(second)

    @precondition(lambda self: self.model.snapshots)
    @rule(data=st.data(), name=st.sampled_from(["main", "audit", "release"]))
    def point_a_reference_elsewhere(self, data: st.DataObject, name: str) -> None:
        target = data.draw(st.sampled_from(self.model.snapshots))
        moved = self.model.refs.get(name) != target
        self.commit([set_ref(target, name, "tag" if name == "release" else "branch")])
        self.model.refs[name] = target
        if name == "main" and moved:
            self.model.history.append(target)

    @rule(name=st.sampled_from(["main", "audit", "release"]))
    def remove_a_reference(self, name: str) -> None:
        self.commit([update("remove-snapshot-ref", ref_name=name)])
        self.model.refs.pop(name, None)

    @precondition(lambda self: self.model.snapshots)
    @rule(data=st.data())
    def expire_what_no_branch_needs(self, data: st.DataObject) -> None:
        branches = {self.model.refs.get("main"), self.model.refs.get("audit")}
        candidates = [each for each in self.model.snapshots if each not in branches]
        expired = set(data.draw(st.lists(st.sampled_from(candidates), max_size=3))) if candidates else set()
        self.commit([update("remove-snapshots", snapshot_ids=[*expired, 10_000])])
        self.model.snapshots = [each for each in self.model.snapshots if each not in expired]
        self.model.refs = {name: target for name, target in self.model.refs.items() if target not in expired}
        gaps = [position for position, each in enumerate(self.model.history) if each in expired]
        self.model.history = self.model.history[gaps[-1] + 1 :] if gaps else self.model.history

    @rule(name=COLUMNS)
    def add_or_drop_a_column(self, name: str) -> None:
        columns = dict(self.model.columns)
        if columns.pop(name, None) is None:
            columns[name] = self.model.last_column_id + 1
        known = columns in self.model.schemas
        schema = a_schema(*(a_field(field_id, column) for column, field_id in columns.items()))
        schema["fields"][0]["required"] = True
        schema["fields"][1]["type"], schema["fields"][2]["type"] = "string", "timestamptz"
        target = self.model.schemas.index(columns) if known else -1
        self.commit(
            [update("add-schema", schema=schema), update("set-current-schema", schema_id=target)],
            requirement("assert-last-assigned-field-id", last_assigned_field_id=self.model.last_column_id),
        )
        if not known:
            self.model.schemas.append(columns)
        self.model.columns = columns
        self.model.last_column_id = max(self.model.last_column_id, *columns.values())

    @rule(key=st.sampled_from("xy"), value=st.sampled_from("12"))
    def set_a_property(self, key: str, value: str) -> None:
        self.commit([update("set-properties", updates={key: value})])
        self.model.properties[key] = value

    @rule(key=st.sampled_from("xy"))
    def remove_a_property(self, key: str) -> None:
        self.commit([update("remove-properties", removals=[key])])
        self.model.properties.pop(key, None)

    @precondition(lambda self: self.table.format_version < 3)
    @rule()
    def upgrade(self) -> None:
        self.commit([update("upgrade-format-version", format_version=self.table.format_version + 1)])

    @precondition(lambda self: "main" in self.model.refs)
    @rule()
    def a_late_writer_is_refused(self) -> None:
        stale = requirement("assert-ref-snapshot-id", ref="main", snapshot_id=self.model.refs["main"] + 1)
        with pytest.raises(CommitFailed, match="Requirement failed: branch main has changed"):
            commit(self.table, append(self.table, self.model.appended + 1), stale)

    @precondition(lambda self: self.model.snapshots)
    @rule(data=st.data())
    def a_snapshot_cannot_be_added_twice(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(self.model.snapshots))
        with pytest.raises(InvalidMetadata, match=f"Snapshot already exists for id: {taken}"):
            commit(self.table, [add_snapshot(taken)])

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        table, model = self.table, self.model
        assert [each["snapshot-id"] for each in table.snapshots] == model.snapshots
        assert {name: ref["snapshot-id"] for name, ref in table.refs.items()} == model.refs
        assert table.current_snapshot_id == model.refs.get("main")
        assert [entry["snapshot-id"] for entry in table.snapshot_log] == model.history
        assert {each["name"]: each["id"] for each in table.current_schema["fields"]} == model.columns
        assert len(table.schemas) == len(model.schemas)
        assert table.last_column_id == model.last_column_id
        assert table.properties == model.properties
        assert [entry["metadata-file"] for entry in table.metadata_log] == model.files
        assert all(table.find_snapshot(each) for each in model.snapshots)
        assert decode(encode(table)) == table


TestCommits = Commits.TestCase
TestCommits.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
