"""An entry in the listing of a folder."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundFile:
    name: str
    size_bytes: int
    modified_ms: int
