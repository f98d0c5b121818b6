"""Spools as a server would leave them, made by hand: lines, files, and the place they go to."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DAY = "2026-03-01"


def a_line(event_id: str, at: str = f"{DAY}T12:00:00.000Z", **fields: Any) -> dict[str, Any]:
    return {"event_id": event_id, "at": at, "node": "n1", **fields}


def of_table(table: str) -> dict[str, str]:
    namespace, _, name = table.rpartition(".")
    return {"warehouse": "default", "namespace": namespace, "table_name": name}


def put(spool: Path, kind: str, name: str, lines: Iterable[Mapping[str, Any] | str], day: str = DAY) -> Path:
    """One file; a line that is text stands there as it is."""
    folder = spool / kind / day
    folder.mkdir(parents=True, exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file = folder / f"{name}.jsonl"
    file.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return file
