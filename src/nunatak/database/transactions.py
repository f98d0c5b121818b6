"""What a list of changes needs as a whole: its locks, whether it is one plain commit, how to ask after it; no SQL."""

from collections.abc import Sequence

from nunatak.database.records import (
    AddJob,
    Change,
    CreateNamespace,
    DeletePointer,
    DropNamespace,
    InsertPointer,
    Key,
    MovePointer,
    RenamePointer,
    SaveAnswer,
    UpdateNamespace,
)


def locks_for(changes: Sequence[Change]) -> list[str]:
    """Locks for what no constraint can check: whether a namespace is there and empty, whether two folders touch.

    In one order, so that two lists never wait for each other. A plain commit takes none. Warehouses may be allowed the
    same folder, so locations share one lock.
    """
    wanted: set[str] = set()
    for change in changes:
        match change:
            case InsertPointer():
                wanted |= {f"warehouse {change.key.catalog}", "locations"}
            case RenamePointer():
                wanted.add(f"warehouse {change.to.catalog}")
            case CreateNamespace() | DropNamespace() | UpdateNamespace():
                wanted.add(f"warehouse {change.catalog}")
            # The purge must not begin between the look at and the arrival of a table registered over the same files.
            case MovePointer(check_overlap=True) | DeletePointer(purge=True):
                wanted.add("locations")
            case _:
                pass
    return sorted(wanted)


def pointers_to_lock(changes: Sequence[Change]) -> list[Key]:
    """In one order, too; none if a single pointer is written, which locks itself."""
    keys = [change.key for change in changes if isinstance(change, MovePointer | DeletePointer | RenamePointer)]
    return sorted(keys, key=lambda key: (key.catalog, key.namespace, key.name)) if len(keys) > 1 else []


def is_plain_commit(changes: Sequence[Change]) -> bool:
    """One pointer moved, and of the rest only what the statement of a commit takes along."""
    kinds = [type(change) for change in changes]
    return (
        kinds.count(MovePointer) == 1
        and kinds.count(SaveAnswer) <= 1
        and all(kind in (MovePointer, SaveAnswer, AddJob) for kind in kinds)
        and not any(isinstance(each, MovePointer) and (each.check_overlap or each.places_changed) for each in changes)
    )


def plain_commit_of(changes: Sequence[Change]) -> MovePointer:
    """What a plain commit moves."""
    return next(change for change in changes if isinstance(change, MovePointer))


def commit_ids_of(changes: Sequence[Change]) -> list[str]:
    """By which the log knows these changes, if they happened."""
    logged = (InsertPointer, MovePointer, DeletePointer, RenamePointer)
    return [change.entry.commit_id for change in changes if isinstance(change, logged)]
