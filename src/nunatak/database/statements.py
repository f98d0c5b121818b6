"""Reads the named SQL statements of `queries/*.sql`: a heading with the name, a comment, and the SQL.

A heading `-- insert_pointer + save_pointer` names a statement that also does the work of the later step `save_pointer`:
one round trip instead of two. A statement without SQL is a step that this database does not need.

All databases share the statements, except those in `sqlite_*.sql`, `postgres_*.sql` and `mariadb_*.sql`. Where only
words differ, a statement has placeholders, which `ddl.py` explains; `{statement find_administrator}` stands for the SQL
of that statement. MariaDB, which has no UPDATE … RETURNING and uses other indexes, also overrides shared statements.
"""

import re
from collections.abc import Callable
from importlib import resources
from importlib.resources.abc import Traversable

from nunatak.database.ddl import DIALECTS, Dialect, in_dialect, replace_placeholders

MIGRATIONS: Traversable = resources.files(__package__).joinpath("migrations")  # tests replace it to add a migration

_HEADING = re.compile(r"^-- ([a-z_]+(?: \+ [a-z_]+)*)$", re.MULTILINE)
_INCLUDED = re.compile(r"\{statement ([a-z_]+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_RETURNS_ROWS = re.compile(r"\A(SELECT|WITH|SHOW|PRAGMA)\b|\bRETURNING\b")


def read_statements(dialect: Dialect = "sqlite") -> dict[str, str]:
    """Returns all statements by name; an empty one has nothing to do on this database."""
    return {heading[0]: sql for heading, sql in _read_dialect(dialect).items()}


def read_covered(dialect: Dialect = "sqlite") -> dict[str, frozenset[str]]:
    """Returns for each statement with a heading `-- one + other` the names of the other steps that it includes."""
    return {heading[0]: frozenset(heading[1:]) for heading in _read_dialect(dialect) if len(heading) > 1}


def returns_rows(sql: str) -> bool:
    return _RETURNS_ROWS.search(sql) is not None


def _read_dialect(dialect: Dialect) -> dict[tuple[str, ...], str]:
    own = _read_files(lambda name: name.startswith(f"{dialect}_"))
    shared = _read_files(lambda name: not name.startswith(tuple(f"{each}_" for each in DIALECTS)))
    twice = {heading[0] for heading in own} & {heading[0] for heading in shared}
    if dialect != "mariadb" and twice:
        raise ValueError(f"two statements are named {', '.join(sorted(twice))}")
    found = {heading: sql for heading, sql in shared.items() if heading[0] not in twice} | own
    by_name = {heading[0]: sql.rstrip(";") for heading, sql in found.items()}
    whole = {heading: _INCLUDED.sub(lambda match: by_name[match[1]], sql) for heading, sql in found.items()}
    return {heading: replace_placeholders(sql, dialect) for heading, sql in whole.items()}


def _read_files(wanted: Callable[[str], bool]) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    names: set[str] = set()
    for file in sorted(resources.files(__package__).joinpath("queries").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql") or not wanted(file.name):
            continue
        parts = _HEADING.split(file.read_text("utf-8"))
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            heading = tuple(title.split(" + "))
            if heading[0] in names:
                raise ValueError(f"two statements are named {heading[0]}")
            names.add(heading[0])
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            found[heading] = "\n".join(lines).strip()
    return found


def number_parameters(sql: str) -> tuple[str, tuple[str, ...]]:
    """Returns the statement with parameters `$1`, `$2`, … and their names in that order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", sql), names


def in_named_style(sql: str) -> tuple[str, tuple[str, ...]]:
    """Returns the statement with parameters `%(name)s` and without its semicolon, and the parameter names."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%").rstrip(";")), names


def read_migrations(dialect: Dialect = "sqlite") -> list[tuple[int, str, str]]:
    """Returns number, name and SQL of every migration, in order."""
    found = []
    for file in MIGRATIONS.iterdir():
        if file.name.endswith(".sql"):
            name = file.name.removesuffix(".sql")
            found.append((int(name[:4]), name, in_dialect(file.read_text("utf-8"), dialect)))
    return sorted(found)
