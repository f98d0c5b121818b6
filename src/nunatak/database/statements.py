"""The named SQL statements of `queries/*.sql`, read once: a name, what is special about it, and the SQL.

Both databases share them, except for what `sqlite_*.sql` and `postgres_*.sql` say in words of their own.
"""

import re
from importlib import resources
from typing import Literal

Dialect = Literal["sqlite", "postgres"]
DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgres")

_NAME = re.compile(r"^-- ([a-z_]+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


def read_statements(dialect: Dialect = "sqlite") -> dict[str, str]:
    """All statements by name."""
    others = tuple(f"{each}_" for each in DIALECTS if each != dialect)
    found: dict[str, str] = {}
    for file in sorted(resources.files(__package__).joinpath("queries").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql") or file.name.startswith(others):
            continue
        parts = _NAME.split(file.read_text("utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"two statements are named {name}")
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            found[name] = "\n".join(lines).strip()
    return found


def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1` for its first parameter and so on, and the names in that order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", sql), names


def read_migrations(dialect: Dialect = "sqlite") -> list[tuple[int, str, str]]:
    """Number, name and SQL of every migration, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    found = []
    for file in (folder if dialect == "sqlite" else folder.joinpath(dialect)).iterdir():
        if file.name.endswith(".sql"):
            name = file.name.removesuffix(".sql")
            found.append((int(name[:4]), name, file.read_text("utf-8")))
    return sorted(found)
