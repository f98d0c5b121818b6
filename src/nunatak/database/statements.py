"""The named SQL statements of `queries/*.sql`, read once: a name, what is special about it, and the SQL.

The databases share them, except for what `sqlite_*.sql`, `postgres_*.sql` and `mariadb_*.sql` say in own words;
MariaDB, which knows neither ON CONFLICT nor UPDATE … RETURNING, also says anew what the others share.
"""

import re
from collections.abc import Callable
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

Dialect = Literal["sqlite", "postgres", "mariadb"]
DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgres", "mariadb")

MIGRATIONS: Traversable = resources.files(__package__).joinpath("migrations")  # a test adds one of a version to come

_NAME = re.compile(r"^-- ([a-z_]+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


def read_statements(dialect: Dialect = "sqlite") -> dict[str, str]:
    """All statements by name."""
    own = _read_files(lambda name: name.startswith(f"{dialect}_"))
    shared = _read_files(lambda name: not name.startswith(tuple(f"{each}_" for each in DIALECTS)))
    if dialect != "mariadb" and (twice := own.keys() & shared.keys()):
        raise ValueError(f"two statements are named {', '.join(sorted(twice))}")
    return shared | own


def _read_files(wanted: Callable[[str], bool]) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(resources.files(__package__).joinpath("queries").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql") or not wanted(file.name):
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


def in_named_style(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `%(name)s` for its parameters and without its semicolon, and their names."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%").rstrip(";")), names


def read_migrations(dialect: Dialect = "sqlite") -> list[tuple[int, str, str]]:
    """Number, name and SQL of every migration, in order."""
    found = []
    for file in (MIGRATIONS if dialect == "sqlite" else MIGRATIONS.joinpath(dialect)).iterdir():
        if file.name.endswith(".sql"):
            name = file.name.removesuffix(".sql")
            found.append((int(name[:4]), name, file.read_text("utf-8")))
    return sorted(found)
