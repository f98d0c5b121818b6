"""Properties of a list of changes: its locks, whether it is a plain commit, its ids in the commit log. No SQL."""

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
    """Returns locks for checks that no constraint can make: namespace exists, is empty, folders do not overlap.

    Sorted, so that two transactions cannot deadlock. A plain commit takes none. Warehouses may share an allowed folder,
    so all locations share one lock.
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
            # A purge must not be queued between the check and the insert of a table registered over the same files.
            case MovePointer(check_overlap=True) | DeletePointer(purge=True):
                wanted.add("locations")
            case _:
                pass
    return sorted(wanted)


def pointers_to_lock(changes: Sequence[Change]) -> list[Key]:
    """Returns the pointers to lock, sorted against deadlocks; none for a single pointer, whose UPDATE locks the row."""
    keys = [change.key for change in changes if isinstance(change, MovePointer | DeletePointer | RenamePointer)]
    return sorted(keys, key=lambda key: (key.catalog, key.namespace, key.name)) if len(keys) > 1 else []


def is_plain_commit(changes: Sequence[Change]) -> bool:
    """Whether one pointer moves, along with only what `commit_pointer` includes: jobs and one answer."""
    kinds = [type(change) for change in changes]
    return (
        kinds.count(MovePointer) == 1
        and kinds.count(SaveAnswer) <= 1
        and all(kind in (MovePointer, SaveAnswer, AddJob) for kind in kinds)
        and not any(isinstance(each, MovePointer) and (each.check_overlap or each.places_changed) for each in changes)
        and not any(isinstance(each, AddJob) and each.not_before_ms for each in changes)
    )


def plain_commit_of(changes: Sequence[Change]) -> MovePointer:
    """Returns the one MovePointer of a plain commit."""
    return next(change for change in changes if isinstance(change, MovePointer))


def commit_ids_of(changes: Sequence[Change]) -> list[str]:
    """Returns the ids under which these changes are in the commit log if they were committed."""
    logged = (InsertPointer, MovePointer, DeletePointer, RenamePointer)
    return [change.entry.commit_id for change in changes if isinstance(change, logged)]
