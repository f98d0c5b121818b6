"""Who changes the database: `write` and `publish` in the catalog, and the few others named here, each with a reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "nunatak"

# Who calls `Store.apply`: the file and the function, and why it does not go through `catalog/write.py`. A change that a
# caller asks for belongs to `write`: there it gets its audit row, and the request knows how far its change came.
DIRECT_WRITES = {
    ("catalog/write.py", "write"): "this is the door",
    # The server keeps its own records; nothing that a client could ask for is changed.
    ("api/app.py", "App._first"): "keeps a refusal for its idempotency key; nothing else was done",
    ("catalog/pointers.py", "_adopt"): "copies the metadata of a pointer that another client moved, during a load",
    ("catalog/write_behind.py", "WriteBehind.store"): "write-behind: the pointer was moved by the commit",
    ("catalog/jobs.py", "run_jobs"): "forgets answers whose idempotency keys have expired",
    ("access/embedded.py", "EmbeddedIdentity._record_use"): "notes when a credential was last used",
    ("events/audit_buffer.py", "AuditBuffer.flush"): "the audit rows of reads and denials themselves",
    ("events/retention.py", "prune"): "deletes audit rows at the end of their retention, and brings its own audit row",
    ("events/seals.py", "seal_up_to"): "seals the audit rows themselves",
    ("catalog/unpublished_files.py", "UnpublishedFiles.store"): "jobs that look at the files of failed commits",
    ("events/outbox.py", "number_events"): "assigns positions to events that are committed already",
    ("events/outbox.py", "_find_reader"): "adds a reader of events on first use",
    ("events/outbox.py", "_lease"): "leases the reader that hands events to the spool",
    ("events/outbox.py", "hand_to_spool"): "notes how far the spool has got",
    ("events/outbox.py", "release_spool"): "ends that lease",
    ("events/outbox.py", "trim"): "deletes events at the end of their retention; the changes themselves stay logged",
    ("events/outbox.py", "_skip_deleted"): "moves the spool behind deleted events",
    # Leases of jobs: taken, kept and ended by servers and workers many times a minute.
    ("catalog/jobs.py", "run_next"): "gives a job back when the server stops",
    ("catalog/jobs.py", "_end"): "ends a job of the server with its result, or gives it back",
    ("catalog/jobs.py", "Lease._extend_periodically"): "keeps the lease of a job",
    ("catalog/job_queue.py", "lease"): "leases a job to a server or worker, or ends one that was tried too often",
    ("catalog/job_queue.py", "lease_this"): "leases a job to a worker",
    ("api/maintenance_jobs.py", "_forget"): "ends a job whose table is gone, when a worker asks for one",
    ("api/maintenance_jobs.py", "heartbeat"): "extends the lease of a worker's job",
    # Keys and secrets of the server, below the catalog.
    ("access/bootstrap.py", "bootstrap"): "the first administrator: no caller is known yet; brings its own audit row",
    ("access/tokens.py", "AccessTokens.rotate"): "a new signing key; the handler gives the audit row along",
    (
        "access/rotation.py",
        "_seal_stale",
    ): "seals secrets with the newest key; `nunatak encryption-key` and its route audit it",
    ("access/vault.py", "Vault.secret"): "makes a secret of the server on first use",
    ("access/vault.py", "Vault._sealed_in_place"): "encrypts a secret that an older version kept in the clear",
    ("api/encryption_keys.py", "_audit"): "an audit row before the work: what is refused afterwards is still refused",
    # Repairs by an operator, whose server is stopped.
    ("catalog/fsck_repair.py", "_store_file"): "`nunatak fsck --repair` copies metadata beside its pointer",
    ("catalog/fsck_repair.py", "_delete_row"): "`nunatak fsck --repair` forgets what no pointer leads to",
    ("catalog/fsck_repair.py", "_add_namespace_row"): "`nunatak fsck --repair` marks the namespace of a table",
    ("catalog/fsck_repair.py", "_delete_expired"): "`nunatak fsck --repair` forgets answers whose keys have expired",
}
# What makes a pointer lead to a file, and what writes such a file: only `publish` does both, in the right order.
PUBLISHING = {"InsertPointer", "MovePointer", "write_new", "write_metadata"}
PUBLISHED_BY = {
    ("catalog/publish.py", "_changes", "InsertPointer"): "sets a pointer",
    ("catalog/publish.py", "_changes", "MovePointer"): "moves a pointer",
    ("catalog/publish.py", "_write_new_file", "write_new"): "writes a small file",
    ("catalog/publish.py", "_write_new_file", "write_metadata"): "writes a large or compressed file",
    ("catalog/fsck_repair.py", "_rewrite_file", "write_metadata"): "restores a lost file from the database's copy",
}

FILES = sorted(
    str(path.relative_to(SOURCE))
    for path in SOURCE.rglob("*.py")
    if path.relative_to(SOURCE).parts[0] not in {"database", "iceberg", "objectstore"}
)


def functions_with(tree: ast.Module, names: set[str]) -> Iterator[tuple[str, str]]:
    """Each use of one of the names, as a name or an attribute, with the qualified name of the function around it."""

    def visit(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            around = inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                around = (*inside, child.name)
            used = child.attr if isinstance(child, ast.Attribute) else child.id if isinstance(child, ast.Name) else ""
            if used in names:
                yield used, ".".join(inside)
            yield from visit(child, around)

    yield from visit(tree, ())


def functions_that_call(tree: ast.Module, names: set[str]) -> Iterator[tuple[str, str]]:
    """The same for calls only: a pattern, or an annotation, makes nothing."""
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                for used in (node.func, *node.args):  # a function that is handed on is called somewhere
                    name = (
                        used.attr if isinstance(used, ast.Attribute) else used.id if isinstance(used, ast.Name) else ""
                    )
                    if name in names:
                        yield name, function.name


def parsed(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text("utf-8"))


@pytest.mark.parametrize("file", FILES)
def test_a_change_of_the_database_goes_through_write_or_is_named_here(file: str) -> None:
    found = {(file, function) for _, function in functions_with(parsed(file), {"apply"})}

    assert found == {each for each in DIRECT_WRITES if each[0] == file}


@pytest.mark.parametrize("file", FILES)
def test_only_publish_writes_metadata_files_and_moves_pointers(file: str) -> None:
    found = {(file, function, used) for used, function in functions_that_call(parsed(file), PUBLISHING)}

    assert found == {each for each in PUBLISHED_BY if each[0] == file}


def test_every_named_file_is_looked_at() -> None:
    assert {each[0] for each in (*DIRECT_WRITES, *PUBLISHED_BY)} <= set(FILES)


@pytest.mark.parametrize(
    "code",
    [
        "async def sneak(store):\n    await store.apply([])",
        "async def sneak(self):\n    await self._catalog.store.apply([])",
        "def sneak(store):\n    change = store.apply\n    return change",
        "class A:\n    async def sneak(self, store):\n        [await each.store.apply([]) for each in store]",
    ],
)
def test_a_new_direct_write_is_found(code: str) -> None:
    assert {function.rpartition(".")[2] for _, function in functions_with(ast.parse(code), {"apply"})} == {"sneak"}
