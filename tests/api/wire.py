"""What the API suites send and read: answers, and bodies that say what matters and fill in the rest."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "data", "type": "string", "required": False},
    ],
}


@dataclass(frozen=True)
class Answer:
    """One response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, type and message of an error whose envelope is whole."""
        error = self.json["error"]
        assert set(self.json) == {"error"}
        assert set(error) <= {"message", "type", "code", "hint"}
        assert error["code"] == self.status
        assert isinstance(error["message"], str)
        assert error["message"]
        assert self.headers["content-type"] == "application/json"
        return self.status, error["type"], error["message"]

    @property
    def hint(self) -> str:
        hint: str = self.json["error"]["hint"]
        return hint


def ok(answer: Answer) -> Any:
    """The JSON of an answer that has to be 200."""
    assert answer.status == 200, answer.body[:500]
    return answer.json


def done(answer: Answer) -> None:
    assert answer.status == 204, answer.body[:500]
    assert answer.body == b""


def path_of(namespace: Sequence[str] | str, kind: str | None = None, name: str | None = None) -> str:
    """The path of a namespace, a list in it or an entry, encoded as a careful client does."""
    levels = [namespace] if isinstance(namespace, str) else namespace
    path = "/v1/namespaces/" + "%1F".join(quote(level, safe="") for level in levels)
    if kind is not None:
        path += f"/{kind}"
    if name is not None:
        path += f"/{quote(name, safe='')}"
    return path


def a_table(name: str, **fields: Any) -> dict[str, Any]:
    """A request for a table; `fields` are further fields, written with underscores."""
    return {"name": name, "schema": SCHEMA, **_kebab(fields)}


def a_view(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "view-version": a_version(), "properties": {}, **_kebab(fields)}


def a_version(sql: str = "SELECT 1", version_id: int = 1) -> dict[str, Any]:
    return {
        "version-id": version_id,
        "schema-id": 0,
        "timestamp-ms": 1_700_000_000_000,
        "summary": {},
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
        "default-namespace": ["ns"],
    }


def a_commit(*updates: dict[str, Any], requires: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"requirements": list(requires), "updates": list(updates)}


def set_properties(**properties: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": properties}


def add_snapshot(snapshot_id: int, *, parent: int | None = None, sequence: int = 1) -> dict[str, Any]:
    """A snapshot as a writer makes it now; nothing of this server reads the file it names."""
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "manifest-list": f"file:///elsewhere/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent
    return {"action": "add-snapshot", "snapshot": snapshot}


def set_branch(snapshot_id: int, name: str = "main") -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": snapshot_id}


def branch_is_at(snapshot_id: int | None, name: str = "main") -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": snapshot_id}


def identifier(namespace: str, name: str) -> dict[str, Any]:
    return {"namespace": [namespace], "name": name}


def rename(source: dict[str, Any], destination: dict[str, Any]) -> dict[str, Any]:
    return {"source": source, "destination": destination}


def _kebab(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in fields.items()}
