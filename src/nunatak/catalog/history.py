"""Reads a table's lines in the commit log: whether they form one chain, who wrote them, and which files they name."""

from dataclasses import dataclass, field

from nunatak.database.records import LogLine
from nunatak.database.store import Store

PAGE = 1000  # lines per query; a table may have a million


@dataclass
class CommitHistory:
    """The state after the lines read so far. A table may have several names, each with its own chain of files."""

    gaps: list[str] = field(default_factory=list)
    ours: bool = True  # created here, and never moved by another client or registered from a file
    _pointers: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _lines: int = 0

    def leads_to(self, namespace: str, name: str, metadata_location: str) -> bool:
        return metadata_location in self._pointers.get((namespace, name), ())

    def add(self, line: LogLine) -> None:
        self._lines += 1
        name, new, previous = (line.namespace, line.name), line.metadata_location, line.previous_metadata_location
        kind = line.operation.partition("-")[0]
        known = self._pointers.get(name, set())
        if kind == "external" and new is not None:
            # A server may log the move late, after another server logged it and committed: both may be the next base.
            self.ours = self.ours and new in known
            self._pointers[name] = known | {new}
        elif new is None:
            self._pointers.pop(name, None)
        elif kind == "rename":
            self._rename(name, new)
        else:
            self._move(line, kind, known, previous)
            self._pointers[name] = {new}

    def _move(self, line: LogLine, kind: str, known: set[str], previous: str | None) -> None:
        # The file of a register was written elsewhere: another catalog may still reference the table's files.
        if kind == "register":
            self.ours = False
        elif kind == "create":
            if self._lines > 1:
                self.gaps.append(f"line {line.sequence} creates the table a second time")
        elif previous not in known:
            before = " or ".join(sorted(known)) or "nothing"
            self.gaps.append(
                f"line {line.sequence} moves the pointer from {previous}, but the line before it set {before}"
            )
        if self._lines == 1 and kind != "create":
            self.ours = False

    def _rename(self, name: tuple[str, str], metadata_location: str) -> None:
        old = next((each for each, locations in self._pointers.items() if metadata_location in locations), None)
        if old is None:
            self.ours = False  # another client moved it, and it was renamed before a server logged the move
        else:
            del self._pointers[old]
        self._pointers[name] = {metadata_location}


async def read_history(store: Store, table_uuid: str, unnamed: dict[str, str]) -> CommitHistory:
    """Reads the whole history; removes from `unnamed` (locations by file name) the files that a line names."""
    history = CommitHistory()
    after = 0
    while True:
        lines = await store.commits_of(table_uuid, after, PAGE)
        for line in lines:
            history.add(line)
            for location in (line.metadata_location, line.previous_metadata_location):
                if location is not None:
                    unnamed.pop(file_name(location), None)
        if len(lines) < PAGE:
            return history
        after = lines[-1].sequence


def file_name(location: str) -> str:
    return location.rpartition("/")[2]
