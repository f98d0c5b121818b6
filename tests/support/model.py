"""The catalog as a pure model: dictionaries that say what every request must be answered and what is there afterwards.

The server chooses uuids and the names of new files; the model takes those from the answers, and only checks that each
is new and stands where it should. Everything else it predicts.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.support.model_metadata import (
    Json,
    Refused,
    as_written,
    change_table,
    change_view,
    check_requirements,
    new_table,
    new_view,
)

Namespace = tuple[str, ...]
Name = tuple[Namespace, str]
Kind = Literal["table", "view"]

KEY_LIFE_MS = (1800 + 300) * 1000  # as advertised, and the grace for clocks and late retries
MISSING = {"table": "NoSuchTableException", "view": "NoSuchViewException"}
_METADATA_FILE = re.compile(r"/metadata/(\d{5})-[0-9a-f-]{36}\.metadata\.json$")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Divergence(AssertionError):
    """The server did something that the model does not."""


@dataclass(frozen=True)
class Request:
    """One request by the name of its operation; `target` is the namespace, table or view in its path."""

    operation: str
    target: Namespace | Name | None = None
    body: Json | None = None
    query: str = ""
    key: str | None = None

    def mark(self) -> str:
        """What makes it the same request when it is sent again."""
        return json.dumps([self.operation, self.target, self.query, self.body])


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    etag: str | None = None

    @property
    def kind(self) -> str | None:
        return self.body["error"]["type"] if self.status >= 400 and self.body else None


@dataclass(frozen=True)
class Entry:
    """A table or view. A metadata location of None is not known yet: the next load shows it."""

    kind: Kind
    metadata: Json
    metadata_location: str | None = None
    version: int = 0  # the number that the file's name begins with

    @property
    def uuid(self) -> str | None:
        found: str | None = self.metadata[f"{self.kind}-uuid"]
        return found


@dataclass(frozen=True)
class Success:
    """What is expected of an answer: a body, or the metadata of an entry."""

    status: int
    body: Any = None
    entry: Entry | None = None
    is_kept: bool = True  # under the request's key, if it has one


@dataclass
class _Remembered:
    mark: str
    expires_ms: int
    outcome: Success | Refused


@dataclass
class Model:
    """`root` is the warehouse's location."""

    root: str
    now_ms: int
    namespaces: dict[Namespace, dict[str, str]] = field(default_factory=dict)
    entries: dict[Name, Entry] = field(default_factory=dict)
    files: dict[str, Entry] = field(default_factory=dict)  # every metadata file that must be there
    uuids: set[str] = field(default_factory=set)
    etags: dict[str, str] = field(default_factory=dict)  # by metadata location
    keys: dict[str, _Remembered] = field(default_factory=dict)
    commits: set[tuple[str | None, int, str]] = field(default_factory=set)
    registered: set[str | None] = field(default_factory=set)  # uuids: another catalog may lead to their files
    touched: dict[Name, None] = field(default_factory=dict)  # by the last request

    def copy(self) -> "Model":
        """Another model with the same past; entries and their metadata are never changed, only replaced."""
        return Model(
            self.root,
            self.now_ms,
            {levels: dict(properties) for levels, properties in self.namespaces.items()},
            dict(self.entries),
            dict(self.files),
            set(self.uuids),
            dict(self.etags),
            dict(self.keys),
            set(self.commits),
            set(self.registered),
        )

    def judge(self, request: Request, answer: Answer) -> None:
        """Take the request into the model; raises Divergence unless the answer is the one it must be."""
        self.touched = {}
        known = self.keys.get(request.key) if request.key is not None else None
        if known is not None and known.expires_ms > self.now_ms:
            self._judge_again(request, known, answer)
            return
        try:
            outcome: Success | Refused = getattr(self, f"_{request.operation}")(request, answer)
        except Refused as refused:
            outcome = refused
        self._compare(request, outcome, answer)
        is_kept = outcome.is_kept if isinstance(outcome, Success) else outcome.status in (400, 404, 409, 422)
        if request.key is not None and is_kept:
            if isinstance(outcome, Success) and outcome.entry is not None:
                outcome = replace(outcome, entry=self._known(outcome.entry, answer))
            self.keys[request.key] = _Remembered(request.mark(), self.now_ms + KEY_LIFE_MS, outcome)

    def _judge_again(self, request: Request, known: _Remembered, answer: Answer) -> None:
        if known.mark != request.mark():
            self._compare(request, Refused(422, "UnprocessableEntityException"), answer)
            return
        outcome = known.outcome
        if isinstance(outcome, Success) and outcome.entry is not None:
            assert outcome.entry.metadata_location is not None
            if outcome.entry.metadata_location not in self.files:
                # Purged since: whatever has the name now, but never an answer that denies what happened.
                now = self.entries.get(request.target) if is_name(request.target) else None  # type: ignore[arg-type]
                outcome = Success(200, entry=now) if now else Refused(500, "CommitStateUnknownException")
        self._compare(request, outcome, answer)

    def _compare(self, request: Request, outcome: Success | Refused, answer: Answer) -> None:
        expected = outcome.status
        if answer.status != expected:
            raise Divergence(f"{request}: {answer.status} {answer.body}, expected {outcome}")
        if isinstance(outcome, Refused):
            if answer.body is not None and answer.kind != outcome.kind:
                raise Divergence(f"{request}: {answer.body}, expected {outcome}")
            return
        if outcome.entry is not None:
            self._adopt(outcome.entry, answer)
        elif outcome.body is not None and answer.body != outcome.body:
            raise Divergence(f"{request}: {answer.body}, expected {outcome.body}")

    # What an answer shows of an entry

    def _known(self, entry: Entry, answer: Answer) -> Entry:
        """The entry with what only the answer tells."""
        return replace(entry, metadata_location=answer.body["metadata-location"], metadata=answer.body["metadata"])

    def _adopt(self, entry: Entry, answer: Answer) -> None:
        """Compare the answer with the entry; what the server chose is taken over, once."""
        body, shown = answer.body, dict(answer.body["metadata"])
        expected = as_written(entry.metadata)
        uuid_name = f"{entry.kind}-uuid"
        if expected[uuid_name] is None:
            _claim(shown[uuid_name], self.uuids, _UUID)
            expected = expected | {uuid_name: shown[uuid_name]}
        if expected["location"] is None:
            names = [name for name, other in self.entries.items() if other is entry]
            wanted = self.default_location(names[0], shown[uuid_name])
            expected = expected | {"location": wanted}
        if shown != expected:
            differing = [name for name in {*shown, *expected} if shown.get(name) != expected.get(name)]
            raise Divergence(f"{[(name, shown.get(name), expected.get(name)) for name in differing]} (shown, expected)")
        location = body["metadata-location"]
        if entry.metadata_location is None:
            found = _METADATA_FILE.search(location)
            if location in self.files or found is None or not location.startswith(f"{expected['location']}/metadata/"):
                raise Divergence(f"{location} is no place for new metadata in {expected['location']}")
            if int(found[1]) != entry.version:
                raise Divergence(f"{location} should be number {entry.version}")
        elif location != entry.metadata_location:
            raise Divergence(f"points at {location}, expected {entry.metadata_location}")
        self._settle(entry, expected, location)
        self._check_etag(location, answer.etag)

    def _settle(self, entry: Entry, written: Json, location: str) -> None:
        if entry.metadata_location is not None and entry.metadata["location"] is not None:
            return
        chosen = {name: written[name] for name in (f"{entry.kind}-uuid", "location")}
        settled = replace(entry, metadata=entry.metadata | chosen, metadata_location=location)
        self.uuids.add(str(settled.uuid))
        self.files[location] = settled
        for name, other in self.entries.items():
            if other is entry:
                self.entries[name] = settled
                return

    def _check_etag(self, location: str, etag: str | None) -> None:
        if etag is None or etag != self.etags.setdefault(location, etag):
            raise Divergence(f"{location} had the ETag {self.etags.get(location)} and now {etag}")
        if len(set(self.etags.values())) != len(self.etags):
            raise Divergence(f"another version has the ETag {etag} too")

    def check_loaded(self, name: Name, answer: Answer) -> None:
        """An answer to a load of whatever the model has under this name."""
        entry = self.entries[name]
        if answer.status != 200:
            raise Divergence(f"{name} is answered {answer.status} {answer.body}")
        self._adopt(entry, answer)

    def default_location(self, name: Name, uuid: str) -> str:
        (levels, short), given = name, self.namespaces[name[0]].get("location")
        base = given if given is not None else "/".join([self.root, *map(_slug, levels)])
        return f"{base}/{_slug(short)}-{uuid}"

    # Namespaces

    def _createNamespace(self, request: Request, _: Answer) -> Success:  # noqa: N802 - named as the operation
        assert request.body is not None
        levels = tuple(request.body["namespace"])
        if levels in self.namespaces:
            raise Refused(409, "AlreadyExistsException")
        for depth in range(1, len(levels)):
            self.namespaces.setdefault(levels[:depth], {})
        self.namespaces[levels] = dict(request.body["properties"])
        return Success(200, request.body)

    def _loadNamespaceMetadata(self, request: Request, _: Answer) -> Success:  # noqa: N802
        levels = self._namespace(request)
        properties = self.namespaces[levels]
        location = {"location": "/".join([self.root, *map(_slug, levels)])}
        return Success(200, {"namespace": list(levels), "properties": location | properties})

    def _namespaceExists(self, request: Request, _: Answer) -> Success:  # noqa: N802
        self._namespace(request)
        return Success(204)

    def _updateProperties(self, request: Request, _: Answer) -> Success:  # noqa: N802
        assert request.body is not None
        updates, removals = request.body["updates"], request.body["removals"]
        if set(updates) & set(removals):
            raise Refused(422, "UnprocessableEntityException")
        properties = self.namespaces[self._namespace(request)]
        removed = [name for name in removals if name in properties]
        missing = [name for name in removals if name not in properties]
        for name in removed:
            del properties[name]
        properties.update(updates)
        return Success(200, {"updated": list(updates), "removed": removed, "missing": missing})

    def _dropNamespace(self, request: Request, _: Answer) -> Success:  # noqa: N802
        levels = self._namespace(request)
        children = [other for other in self.namespaces if other[: len(levels)] == levels and other != levels]
        if children or any(name[0] == levels for name in self.entries):
            raise Refused(409, "NamespaceNotEmptyException")
        del self.namespaces[levels]
        return Success(204)

    def children(self, parent: Namespace) -> list[Namespace]:
        depth = len(parent)
        return [each for each in self.namespaces if len(each) == depth + 1 and each[:depth] == parent]

    def names(self, levels: Namespace, kind: Kind) -> list[str]:
        found = (name for (where, name), entry in self.entries.items() if where == levels and entry.kind == kind)
        return sorted(found, key=lambda name: name.encode())

    def _namespace(self, request: Request) -> Namespace:
        levels: Namespace = request.target  # type: ignore[assignment]
        self._require_namespace(levels)
        return levels

    def _require_namespace(self, levels: Namespace) -> None:
        if levels not in self.namespaces:
            raise Refused(404, "NoSuchNamespaceException")

    # Tables and views alike

    def _create(self, request: Request, entry: Entry, name: Name) -> Success:
        self._refuse_place(name, entry)
        self._put(name, entry)
        return Success(200, entry=entry)

    def _refuse_taken(self, name: Name) -> None:
        if name in self.entries:
            raise Refused(409, "AlreadyExistsException")

    def _refuse_place(self, name: Name, entry: Entry) -> None:
        """A folder outside the warehouse, or one that touches another entry's."""
        location = entry.metadata["location"]
        if location is None:
            return
        if not _contains(self.root, location):
            raise Refused(400, "BadRequestException")
        self._refuse_overlap(name, entry, is_new=True)

    def _refuse_chosen(self, updates: Sequence[Json]) -> None:
        """Every folder that an update names lies in the warehouse, also one that a later update replaces."""
        if any(each["action"] == "set-location" and not _contains(self.root, each["location"]) for each in updates):
            raise Refused(400, "BadRequestException")

    def _refuse_overlap(self, name: Name, entry: Entry, *, is_new: bool = False) -> None:
        """Only what is there already may have a second name, and one folder for both."""
        location = entry.metadata["location"]
        for other_name, other in self.entries.items():
            place = other.metadata["location"]
            if other_name == name or location is None or place is None:
                continue  # a folder that the server chooses is nobody else's
            is_twin = place == location and other.uuid == entry.uuid and not is_new
            if not is_twin and (_contains(place, location) or _contains(location, place)):
                raise Refused(400, "BadRequestException")

    def _put(self, name: Name, entry: Entry) -> None:
        self.entries[name] = entry
        self.touched[name] = None

    def _find(self, request: Request, kind: Kind) -> tuple[Name, Entry]:
        name: Name = request.target  # type: ignore[assignment]
        entry = self.entries.get(name)
        if entry is None or entry.kind != kind:
            raise Refused(404, MISSING[kind])
        return name, entry

    def _load(self, request: Request, kind: Kind) -> Success:
        return Success(200, entry=self._find(request, kind)[1])

    def _drop(self, request: Request, kind: Kind) -> Success:
        name, entry = self._find(request, kind)
        del self.entries[name]
        self.touched[name] = None
        if request.query == "purgeRequested=true":
            self._purge(entry)
        return Success(204)

    def _purge(self, entry: Entry) -> None:
        """What it leads to in its own folder goes, and what its log forgot; nothing in that of what is still there."""
        files = [each["metadata-file"] for each in entry.metadata.get("metadata-log", [])]
        if entry.uuid not in self.registered:
            folder = f"{entry.metadata['location']}/metadata/"
            files += [
                file for file, other in self.files.items() if file.startswith(folder) and other.uuid == entry.uuid
            ]
        own = [file for file in (*files, entry.metadata_location) if _contains(entry.metadata["location"], str(file))]
        for file in own:
            if not any(_contains(other.metadata["location"], str(file)) for other in self.entries.values()):
                self.files.pop(str(file), None)

    def _rename(self, request: Request, kind: Kind) -> Success:
        assert request.body is not None
        source, to = _name_of(request.body["source"]), _name_of(request.body["destination"])
        entry = self.entries.get(source)
        if entry is None or entry.kind != kind:
            raise Refused(404, MISSING[kind])
        if source == to:
            return Success(204)
        self._require_namespace(to[0])
        self._refuse_taken(to)
        del self.entries[source]
        self.touched[source] = None
        self._put(to, entry)
        return Success(204)

    def _register(self, request: Request, kind: Kind, *, overwrite: bool) -> Success:
        assert request.body is not None
        name: Name = (request.target, request.body["name"])  # type: ignore[assignment]
        before = self.entries.get(name)
        if kind == "view":
            self._require_namespace(name[0])
        if before is not None and (not overwrite or before.kind != kind):
            raise Refused(409, "AlreadyExistsException")
        self._require_namespace(name[0])
        location = request.body["metadata-location"]
        if not _contains(self.root, location):
            raise Refused(400, "BadRequestException")
        if location not in self.files:
            raise Refused(404, "NotFoundException")
        entry = self.files[location]
        if entry.kind != kind:
            raise Refused(400, "ValidationException")
        entry = replace(entry)
        self._refuse_overlap(name, entry)
        self.registered.add(entry.uuid)
        self._put(name, entry)
        return Success(200, entry=entry)

    # Tables

    def _createTable(self, request: Request, answer: Answer) -> Success:  # noqa: N802
        assert request.body is not None
        name: Name = (request.target, request.body["name"])  # type: ignore[assignment]
        self._require_namespace(name[0])
        self._refuse_taken(name)
        body = request.body
        entry = Entry("table", new_table(body["schema"], body["properties"], body.get("location"), self.now_ms))
        if not body.get("stage-create"):
            return self._create(request, entry, name)
        self._refuse_place(name, entry)
        return self._staged(entry, name, answer)

    def _staged(self, entry: Entry, name: Name, answer: Answer) -> Success:
        """Nothing is there yet; only its uuid and its folder are the server's choice."""
        uuid = answer.body["metadata"]["table-uuid"] if answer.status == 200 else ""
        if answer.status == 200:
            _claim(uuid, self.uuids, _UUID)
        location = entry.metadata["location"] or self.default_location(name, uuid)
        shown = as_written(entry.metadata | {"table-uuid": uuid, "location": location})
        return Success(200, {"metadata": shown, "config": {}})

    def _loadTable(self, request: Request, _: Answer) -> Success:  # noqa: N802
        return self._load(request, "table")

    def _tableExists(self, request: Request, _: Answer) -> Success:  # noqa: N802
        self._find(request, "table")
        return Success(204)

    def _dropTable(self, request: Request, _: Answer) -> Success:  # noqa: N802
        return self._drop(request, "table")

    def _unregisterTable(self, request: Request, _: Answer) -> Success:  # noqa: N802
        name, entry = self._find(request, "table")
        del self.entries[name]
        self.touched[name] = None
        return Success(200, entry=entry)

    def _renameTable(self, request: Request, _: Answer) -> Success:  # noqa: N802
        return self._rename(request, "table")

    def _registerTable(self, request: Request, _: Answer) -> Success:  # noqa: N802
        assert request.body is not None
        return self._register(request, "table", overwrite=bool(request.body.get("overwrite")))

    def _updateTable(self, request: Request, _: Answer) -> Success:  # noqa: N802
        name: Name = request.target  # type: ignore[assignment]
        return self._commit(request, {name: [request.body or {}]})

    def _commitTransaction(self, request: Request, _: Answer) -> Success:  # noqa: N802
        assert request.body is not None
        parts: dict[Name, list[Json]] = {}
        for change in request.body["table-changes"]:
            parts.setdefault(_name_of(change["identifier"]), []).append(change)
        return replace(self._commit(request, parts), status=204, entry=None)

    def _commit(self, request: Request, parts: dict[Name, list[Json]]) -> Success:
        try:
            planned = {name: self._plan(request, name, changes) for name, changes in parts.items()}
        except Refused as refused:
            repeated = self._already_done(request, parts, refused)
            if repeated is None:
                raise
            return repeated
        before = dict(self.entries)
        try:
            for name, entry in planned.items():
                if entry is not before.get(name):
                    old = before.get(name)
                    if old is None or old.metadata["location"] != entry.metadata["location"]:
                        self._refuse_overlap(name, entry, is_new=old is None)
                    self.entries[name] = entry
        except Refused:
            self.entries = before
            raise
        for name, entry in planned.items():
            self.touched[name] = None
            snapshot_id = _last_added(parts[name])
            if snapshot_id is not None and entry is not before.get(name):
                self.commits.add((entry.uuid, snapshot_id, request.mark()))
        return Success(200, entry=next(iter(planned.values())))

    def _plan(self, request: Request, name: Name, changes: Sequence[Json]) -> Entry:
        before = self.entries.get(name)
        base = before.metadata if before is not None and before.kind == "table" else None
        if base is None:
            if (_assigned(changes), _last_added(changes), request.mark()) in self.commits:
                raise Refused(500, "CommitStateUnknownException")  # it was made by this very request
            self._check_creation(name, changes[0]["requirements"])
        location = before.metadata_location if before is not None else None
        state = base
        for change in changes:
            check_requirements(change["requirements"], state)
            if len(changes) > 1:
                state = change_table(state, change["updates"], location, self.now_ms)
        updates = [update for change in changes for update in change["updates"]]
        self._refuse_chosen(updates)
        after = change_table(base, updates, location, self.now_ms)
        if before is not None and after is base:
            return before
        if after["location"] is not None and not _contains(self.root, after["location"]):
            raise Refused(400, "BadRequestException")
        version = before.version + 1 if before is not None else 0
        return Entry("table", after, version=version)

    def _check_creation(self, name: Name, requirements: Sequence[Json]) -> None:
        kinds = [each["type"] for each in requirements]
        if "assert-create" not in kinds:
            raise Refused(404, MISSING["table"])
        if set(kinds) != {"assert-create"}:
            raise Refused(400, "IllegalArgumentException")
        self._refuse_taken(name)
        self._require_namespace(name[0])

    def _already_done(self, request: Request, parts: dict[Name, list[Json]], refused: Refused) -> Success | None:
        """A commit that is refused by its own earlier success is a success."""
        snapshots = {name: _last_added(changes) for name, changes in parts.items()}
        if all(snapshot_id is None for snapshot_id in snapshots.values()):
            return None
        there: list[Entry] = []
        for name, snapshot_id in snapshots.items():
            current = self.entries.get(name)
            here = current.uuid if current is not None and current.kind == "table" else None
            uuid = _asserted(parts[name]) or here
            if snapshot_id is not None and (uuid, snapshot_id, request.mark()) not in self.commits:
                return None
            if current is not None and here is not None and here == uuid:
                there.append(current)
        if len(there) < len(parts):
            raise Refused(500, "CommitStateUnknownException") from refused
        return Success(200, entry=there[0], is_kept=False)  # known by its content: a key it brings now is not kept

    # Views

    def _createView(self, request: Request, _: Answer) -> Success:  # noqa: N802
        assert request.body is not None
        name: Name = (request.target, request.body["name"])  # type: ignore[assignment]
        self._require_namespace(name[0])
        self._refuse_taken(name)
        return self._create(request, Entry("view", new_view(request.body)), name)

    def _loadView(self, request: Request, _: Answer) -> Success:  # noqa: N802
        return self._load(request, "view")

    def _viewExists(self, request: Request, _: Answer) -> Success:  # noqa: N802
        self._find(request, "view")
        return Success(204)

    def _dropView(self, request: Request, _: Answer) -> Success:  # noqa: N802
        return self._drop(request, "view")

    def _renameView(self, request: Request, _: Answer) -> Success:  # noqa: N802
        return self._rename(request, "view")

    def _registerView(self, request: Request, _: Answer) -> Success:  # noqa: N802
        return self._register(request, "view", overwrite=False)

    def _replaceView(self, request: Request, _: Answer) -> Success:  # noqa: N802
        assert request.body is not None
        name, entry = self._find(request, "view")
        if any(each["uuid"] != entry.uuid for each in request.body["requirements"]):
            raise Refused(409, "CommitFailedException")
        self._refuse_chosen(request.body["updates"])
        after = change_view(entry.metadata, request.body["updates"], self.now_ms)
        if after is entry.metadata:
            return Success(200, entry=entry)
        new = Entry("view", after, version=entry.version + 1)
        if not _contains(self.root, after["location"]):
            raise Refused(400, "BadRequestException")
        if after["location"] != entry.metadata["location"]:
            self._refuse_overlap(name, new)
        self._put(name, new)
        return Success(200, entry=new)


def _claim(uuid: str, known: set[str], shape: re.Pattern[str]) -> None:
    if uuid in known or not shape.fullmatch(uuid):
        raise Divergence(f"{uuid} is no new uuid")
    known.add(uuid)


def is_name(target: object) -> bool:
    return isinstance(target, tuple) and len(target) == 2 and isinstance(target[0], tuple)


def _name_of(identifier: Json) -> Name:
    return tuple(identifier["namespace"]), identifier["name"]


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)


def _contains(folder: str, place: str) -> bool:
    return place == folder or place.startswith(f"{folder}/")


def _last_added(changes: Sequence[Json]) -> int | None:
    updates = [update for change in changes for update in change["updates"]]
    found = [update["snapshot"]["snapshot-id"] for update in updates if update["action"] == "add-snapshot"]
    return found[-1] if found else None


def _assigned(changes: Sequence[Json]) -> str | None:
    updates = (update for change in changes for update in change["updates"])
    return next((update["uuid"] for update in updates if update["action"] == "assign-uuid"), None)


def _asserted(changes: Sequence[Json]) -> str | None:
    found = [each["uuid"] for change in changes for each in change["requirements"] if "uuid" in each]
    return found[0] if found else None
