"""A random sequence of requests, chosen by what exists so that most are valid; each says what it changes."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.conformance.differential import commits, shapes
from tests.conformance.differential.exchange import Answer, Request
from tests.conformance.differential.shapes import Dice
from tests.conformance.differential.world import Name, Namespace, Thing, World

Json = Any
LEVELS = ("a", "b", "sales", "new.db", "new/db", "größe", "a b", "x+y")
NAMES = ("t1", "t2", "t3", "orders", "tab/le", "ta.ble", "größe", "a b", "50%")
SINGULAR = {"tables": "table", "views": "view"}


@dataclass(frozen=True)
class Step:
    """A request, what it does to the world if it succeeds, and which names are in doubt if the servers disagree."""

    request: Request
    effect: Callable[[Answer], None]
    touches: tuple[Name, ...] = ()
    namespaces: tuple[Namespace, ...] = ()


def nothing(_: Answer) -> None:
    """The effect of a request that only reads."""


class Sequence:
    """Yields steps; `follow` must be told how the reference answered before the next one is asked for."""

    def __init__(self, seed: int, now_ms: Callable[[], int]) -> None:
        self.rng = Dice(seed)
        self.now_ms = now_ms
        self.world = World()
        self._queue: deque[Step] = deque()

    def next(self) -> Step:
        if self._queue:
            return self._queue.popleft()
        self.rng.may_slip = True
        if not self.world.namespaces:
            return self.create_namespace()
        choices = list(STEPS)
        return self.rng.choices(choices, weights=[STEPS[step] for step in choices])[0](self)

    # Namespaces

    def create_namespace(self) -> Step:
        parents: list[Namespace] = [(), *(known for known in self.world.namespaces if len(known) < 3)]
        namespace = (*self.rng.choice(parents), self.rng.choice(LEVELS))
        properties = {
            key: self.rng.choice(commits.WORDS) for key in self.rng.sample(commits.KEYS[:3], self.rng.randint(0, 2))
        }
        body: Json = {"namespace": list(namespace), "properties": properties}
        if self.rng.slips():
            body = self.rng.choice(
                (
                    {"namespace": []},
                    {"namespace": "a"},
                    {"properties": {}},
                    {"namespace": list(namespace), "properties": {"a": 1}},
                    {"namespace": list(namespace), "properties": None},
                    {"namespace": [*namespace, ""]},
                    [],
                )
            )

        elif self.rng.slips():
            body = {"namespace": ["z", self.rng.choice(LEVELS)]}
            parent = Request("create missing parent", "POST", "/namespaces", {"namespace": ["z"]})
            self._queue.append(Step(parent, nothing, namespaces=(("z",),)))

        def effect(answer: Answer) -> None:
            if answer.body["namespace"]:  # the reference creates one without a name; nobody could ask for it
                self.world.namespaces[tuple(answer.body["namespace"])] = answer.body.get("properties") or {}

        named = body.get("namespace") if isinstance(body, dict) else None
        touched = (tuple(named),) if isinstance(named, list) and named else ()
        return Step(Request("create namespace", "POST", "/namespaces", body), effect, namespaces=touched)

    def load_namespace(self) -> Step:
        method = self.rng.choice(("GET", "HEAD"))
        return Step(Request(f"{method} namespace", method, namespace_path(self._namespace())), nothing)

    def update_namespace(self) -> Step:
        namespace = self._namespace()
        keys = self.rng.sample(commits.KEYS[:3], 2)
        body: Json = {"updates": {keys[0]: self.rng.choice(commits.WORDS)}, "removals": [keys[1]]}
        if self.rng.slips():
            body = self.rng.choice(
                (
                    {"updates": {"owner": "x"}, "removals": ["owner"]},
                    {"removals": ["nobody"]},
                    {"updates": {"owner": "y"}},
                    {},
                    {"updates": []},
                    {"removals": "owner"},
                )
            )
        path = f"{namespace_path(namespace)}/properties"
        return Step(Request("update namespace", "POST", path, body), nothing, namespaces=(namespace,))

    def drop_namespace(self) -> Step:
        empty = [namespace for namespace in self.world.namespaces if self.world.is_empty(namespace)]
        namespace = self.rng.choice(empty) if len(empty) > 1 and not self.rng.slips() else self._namespace()

        def effect(_: Answer) -> None:
            self.world.namespaces.pop(namespace, None)

        return Step(Request("drop namespace", "DELETE", namespace_path(namespace)), effect, namespaces=(namespace,))

    def list_something(self) -> Step:
        what = self.rng.choice(("namespaces", "tables", "views"))
        query: dict[str, str] = {}
        path = "/namespaces"
        if what != "namespaces":
            path = f"{namespace_path(self._namespace())}/{what}"
        elif self.rng.random() < 0.5:
            query["parent"] = "\x1f".join(self._namespace())
        if self.rng.random() < 0.5:
            size = str(self.rng.randint(1, 4)) if not self.rng.slips() else self.rng.choice(("-1", "x", ""))
            return Step(
                Request(f"list {what} by page", "GET", path, query={**query, "pageSize": size}, all_pages=True), nothing
            )
        if self.rng.random() < 0.5:
            query["pageToken"] = ""
        return Step(Request(f"list {what}", "GET", path, query=query), nothing)

    # Tables and views

    def create_table(self) -> Step:
        name = self._free_name()
        schema = shapes.a_schema(self.rng)
        body: Json = {"name": name[1], "schema": schema, "properties": {}}
        if self.rng.random() < 0.5:
            body["partition-spec"] = shapes.a_spec(self.rng, schema, None)
        if self.rng.random() < 0.4:
            body["write-order"] = shapes.a_sort_order(self.rng, schema)
        if self.rng.random() < 0.6:
            version = self.rng.choice("1233") if not self.rng.slips() else self.rng.choice(("0", "9", "x"))
            body["properties"]["format-version"] = version
        if self.rng.random() < 0.3:
            body["properties"] |= {"owner": "me", "größe": "42"}
        handle = next(self.world.handles)
        if self.rng.random() < 0.2:
            body["location"] = f"«root»/asked-{handle}"
        if self.rng.slips():
            wrong: tuple[Json, ...] = (
                {**body, "name": None},
                {**body, "name": ""},
                {**body, "schema": None},
                {"name": name[1]},
                {**body, "schema": {"type": "struct", "fields": []}},
                {**body, "properties": None},
                {**body, "properties": {"a": None}},
                {**body, "stage-create": "yes"},
                "table",
            )
            body = self.rng.choice(wrong)
        stage = isinstance(body, dict) and self.rng.random() < 0.25
        if stage:
            body["stage-create"] = True
        path = f"{namespace_path(name[0])}/tables"
        request = Request("stage table" if stage else "create table", "POST", path, body, handle=handle)

        def effect(answer: Answer) -> None:
            thing = Thing(handle, answer.body["metadata"])
            if stage:
                self.world.staged.append((name, thing))
            else:
                self.world.tables[name] = thing

        return Step(request, effect, (name,))

    def commit_staged_table(self) -> Step:
        if not self.world.staged:
            return self.create_table()
        name, staged = self.world.staged.pop(self.rng.randrange(len(self.world.staged)))
        body = commits.create_commit(self.rng, staged)
        request = Request("commit staged table", "POST", path_of("tables", name), body, handle=staged.handle)

        def effect(answer: Answer) -> None:
            self.world.tables[name] = Thing(staged.handle, answer.body["metadata"])

        return Step(request, effect, (name,))

    def create_view(self) -> Step:
        name = self._free_name()
        handle = next(self.world.handles)
        schema = shapes.a_schema(self.rng)
        version = commits.a_view_version(self.rng, name[0], self.now_ms, schema["schema-id"])
        body: Json = {"name": name[1], "schema": schema, "view-version": version, "properties": {}}
        if self.rng.random() < 0.3:
            body["properties"] = {"comment": "a view"}
        if self.rng.random() < 0.2:
            body["location"] = f"«root»/asked-{handle}"
        if self.rng.slips():
            wrong: tuple[Json, ...] = (
                {**body, "name": None},
                {**body, "schema": None},
                {**body, "view-version": None},
                {**body, "view-version": {**version, "representations": []}},
                {**body, "view-version": {**version, "default-namespace": []}},
                {**body, "view-version": {**version, "representations": [{"type": "picture"}]}},
                {**body, "properties": None},
            )
            body = self.rng.choice(wrong)

        def effect(answer: Answer) -> None:
            self.world.views[name] = Thing(handle, answer.body["metadata"])

        path = f"{namespace_path(name[0])}/views"
        return Step(Request("create view", "POST", path, body, handle=handle), effect, (name,))

    def load(self) -> Step:
        kind = self._kind()
        name, thing = self._existing(kind)
        method = self.rng.choice(("GET", "GET", "HEAD"))
        query: dict[str, str] = {}
        if kind == "tables" and method == "GET" and self.rng.random() < 0.5:
            query["snapshots"] = self.rng.choice(("all", "refs")) if not self.rng.slips() else "some"
        handle = thing.handle if thing is not None else ""
        request = Request(f"{method} {SINGULAR[kind]}", method, path_of(kind, name), query=query, handle=handle)
        return Step(request, self._reloaded(thing) if method == "GET" and not query else nothing, (name,))

    def commit_table(self) -> Step:
        name, table = self._existing("tables")
        if table is None:
            return self._hopeless_commit("tables", name)
        body = commits.table_commit(self.rng, table, self.now_ms, self.world.snapshot_ids)
        request = Request("commit table", "POST", path_of("tables", name), body, handle=table.handle)
        return Step(request, self._reloaded(table), (name,))

    def commit_view(self) -> Step:
        name, view = self._existing("views")
        if view is None:
            return self._hopeless_commit("views", name)
        body = commits.view_commit(self.rng, view, name[0], self.now_ms)
        request = Request("commit view", "POST", path_of("views", name), body, handle=view.handle)
        return Step(request, self._reloaded(view), (name,))

    def commit_transaction(self) -> Step:
        known = list(self.world.tables.items())
        chosen = self.rng.sample(known, min(len(known), self.rng.randint(1, 3)))
        changes: list[Json] = []
        for name, table in chosen:
            body = commits.table_commit(self.rng, table, self.now_ms, self.world.snapshot_ids)
            changes.append({"identifier": identifier(name), **body})
        if self.rng.slips():
            changes.append({"identifier": identifier(((("nobody",)), "t1")), "requirements": [], "updates": []})
        elif self.rng.slips():
            changes.append({"requirements": [], "updates": []})
        for name, table in chosen:
            request = Request("GET table", "GET", path_of("tables", name), handle=table.handle)
            self._queue.append(Step(request, self._reloaded(table), (name,)))
        request = Request("commit transaction", "POST", "/transactions/commit", {"table-changes": changes})
        return Step(request, nothing, tuple(name for name, _ in chosen))

    def rename(self) -> Step:
        kind = self._kind()
        source, thing = self._existing(kind)
        target = self._free_name() if not self.rng.slips() else self._existing(self._kind())[0]
        if self.rng.slips():
            target = (("nobody",), "t1")
        body: Json = {"source": identifier(source), "destination": identifier(target)}
        if self.rng.slips():
            body = self.rng.choice(
                ({"source": identifier(source)}, {"source": {}, "destination": identifier(target)}, {})
            )

        def effect(_: Answer) -> None:
            if thing is not None:
                del self.world.things(kind)[source]
                self.world.things(kind)[target] = thing

        return Step(Request(f"rename {SINGULAR[kind]}", "POST", f"/{kind}/rename", body), effect, (source, target))

    def drop(self) -> Step:
        kind = self._kind()
        name, thing = self._existing(kind)
        query = {"purgeRequested": self.rng.choice(("true", "false"))} if self.rng.random() < 0.4 else {}

        def effect(_: Answer) -> None:
            self.world.forget(name)
            if thing is not None and query.get("purgeRequested") != "true":
                self.world.dropped[kind].append(thing)

        return Step(Request(f"drop {SINGULAR[kind]}", "DELETE", path_of(kind, name), query=query), effect, (name,))

    def register(self) -> Step:
        kind = self._kind()
        route = "register" if kind == "tables" else "register-view"
        name = self._free_name()
        dropped = self.world.dropped[kind]
        if not dropped:
            return self.drop()
        handle = dropped.pop().handle
        body: Json = {
            "name": name[1],
            "metadata-location": f"«file:{handle}»",
        }
        if self.rng.slips():
            body = self.rng.choice(
                ({**body, "name": None}, {"name": name[1]}, {**body, "metadata-location": "«root»/none.metadata.json"})
            )

        def effect(answer: Answer) -> None:
            self.world.things(kind)[name] = Thing(handle, answer.body["metadata"])

        path = f"{namespace_path(name[0])}/{route}"
        return Step(Request(f"register {SINGULAR[kind]}", "POST", path, body, handle=handle), effect, (name,))

    def ask_nonsense(self) -> Step:
        method, path, body = self.rng.choice(
            (
                ("GET", "/nothing", None),
                ("POST", "/namespaces/a/nothing", {}),
                ("PUT", "/namespaces", {}),
                ("DELETE", "/namespaces", None),
                ("POST", "/transactions/commit", {}),
                ("POST", "/transactions/commit", {"table-changes": []}),
                ("POST", "/tables/rename", None),
                ("POST", "/namespaces", None),
            )
        )
        return Step(Request("nonsense", method, path, body), nothing)

    # Choices

    def _kind(self) -> str:
        return self.rng.choice(("tables", "tables", "views"))

    def _namespace(self) -> Namespace:
        known = list(self.world.namespaces)
        return self.rng.choice(known) if known and not self.rng.slips() else ("nobody", "here")

    def _free_name(self) -> Name:
        """A name in an existing namespace that mostly is not taken."""
        for _ in range(20):
            name = (self._namespace(), self.rng.choice(NAMES))
            if self.world.is_free(name) and name[0] in self.world.namespaces:
                break
        return name if not self.rng.slips() else (self._namespace(), self.rng.choice(NAMES))

    def _existing(self, kind: str) -> tuple[Name, Thing | None]:
        known = list(self.world.things(kind).items())
        if known and not self.rng.slips():
            return self.rng.choice(known)
        self.rng.may_slip = False  # a name where nothing is will be mistake enough
        name = (self._namespace(), self.rng.choice(NAMES))
        return name, self.world.things(kind).get(name)

    def _hopeless_commit(self, kind: str, name: Name) -> Step:
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
        return Step(Request(f"commit {SINGULAR[kind]}", "POST", path_of(kind, name), body), nothing, (name,))

    def _reloaded(self, thing: Thing | None) -> Callable[[Answer], None]:
        def effect(answer: Answer) -> None:
            if thing is not None:
                thing.metadata = answer.body["metadata"]

        return effect


def namespace_path(namespace: Namespace) -> str:
    return "/namespaces/" + "%1F".join(quote(level, safe="") for level in namespace)


def path_of(kind: str, name: Name) -> str:
    return f"{namespace_path(name[0])}/{kind}/{quote(name[1], safe='')}"


def identifier(name: Name) -> Json:
    return {"namespace": list(name[0]), "name": name[1]}


STEPS: dict[Callable[[Sequence], Step], int] = {
    Sequence.create_namespace: 5,
    Sequence.load_namespace: 2,
    Sequence.update_namespace: 3,
    Sequence.drop_namespace: 2,
    Sequence.list_something: 6,
    Sequence.create_table: 12,
    Sequence.commit_staged_table: 3,
    Sequence.create_view: 6,
    Sequence.load: 8,
    Sequence.commit_table: 40,
    Sequence.commit_view: 12,
    Sequence.commit_transaction: 5,
    Sequence.rename: 4,
    Sequence.drop: 5,
    Sequence.register: 3,
    Sequence.ask_nonsense: 1,
}
