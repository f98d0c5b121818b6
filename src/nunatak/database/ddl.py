"""Translates the schema in `migrations/*.sql` and the statements in `queries/*.sql` to each dialect: the SQL of every
placeholder.

`{key 255}` is a placeholder with a size, which only MariaDB needs; `{bytes_of spec}` is one with a column. A paragraph
with the line `-- only: postgres` is for that database alone.
"""

import re
from collections.abc import Mapping
from typing import Literal

Dialect = Literal["sqlite", "postgres", "mariadb"]
DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgres", "mariadb")

# On MySQL, mariadb_migrations.py replaces the collation by its equivalent, utf8mb4_0900_bin.
_BYTE_ORDER = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
_OPTIONS = " ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin"

# In the order of DIALECTS. Names in a `key` are ordered and compared by their bytes.
_WORDS: Mapping[str, tuple[str, str, str]] = {
    "name": ("VARCHAR(#)", 'VARCHAR(#) COLLATE "C"', "VARCHAR(#)"),  # as Iceberg's JDBC catalog defines it
    "key": ("TEXT", 'TEXT COLLATE "C"', "VARCHAR(#)"),
    "text": ("TEXT", "TEXT", "VARCHAR(#)"),
    "longtext": ("TEXT", "TEXT", "MEDIUMTEXT"),
    "bytes": ("BLOB", "BYTEA", "VARBINARY(#)"),
    "longbytes": ("BLOB", "BYTEA", "LONGBLOB"),
    "int": ("INTEGER", "BIGINT", "BIGINT"),
    "small": ("INTEGER", "SMALLINT", "BIGINT"),
    "identity": (
        "INTEGER PRIMARY KEY",
        "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "BIGINT AUTO_INCREMENT PRIMARY KEY",
    ),
    "unique": ("", " UNIQUE", ""),
    "prefix": ("", "", "(255)"),  # length of the indexed prefix of a long text
    "options": ("", "", _OPTIONS),
    "byte_order": ("", "", _BYTE_ORDER),
    # MariaDB cannot roll back DDL, so an interrupted migration is run again from its beginning.
    "create_table": ("CREATE TABLE", "CREATE TABLE", "CREATE TABLE IF NOT EXISTS"),
    "create_index": ("CREATE INDEX", "CREATE INDEX", "CREATE INDEX IF NOT EXISTS"),
    "create_unique_index": ("CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX IF NOT EXISTS"),
    "add_column": ("ADD COLUMN", "ADD COLUMN", "ADD COLUMN IF NOT EXISTS"),
    "unless_null": (" WHERE # IS NOT NULL", " WHERE # IS NOT NULL", ""),  # a partial index; MariaDB has none
    "bytes_of": ("CAST(# AS BLOB)", "convert_to(#, 'UTF8')", "CAST(# AS BINARY)"),  # of a text, in UTF-8
    # Inserts no row and counts none if the key exists: `{insert_if_missing} … VALUES … {if_missing}`.
    "insert_if_missing": ("INSERT INTO", "INSERT INTO", "INSERT IGNORE INTO"),
    "if_missing": ("ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING", ""),
    "keep_existing": ("ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING", "ON DUPLICATE KEY UPDATE # = #"),
    # Replaces columns of the row with this key: `{upsert key} value = {new value}`.
    "upsert": ("ON CONFLICT (#) DO UPDATE SET", "ON CONFLICT (#) DO UPDATE SET", "ON DUPLICATE KEY UPDATE"),
    "new": ("excluded.#", "excluded.#", "VALUES(#)"),
    # One of the texts in a parameter that is a JSON list. PostgreSQL uses an index for an array, not for a subquery.
    "in_list": (
        "IN (SELECT value FROM json_each(:#))",
        "= ANY (ARRAY(SELECT jsonb_array_elements_text(:#::text::jsonb)))",
        "IN (SELECT value FROM json_table(:#, '$[*]' COLUMNS (value VARCHAR(1000) PATH '$')) AS listed)",
    ),
    "role_is_listed": (  # whether the roles of a credential, a JSON list, include the role of a member
        "m.role IN (SELECT value FROM json_each(c.roles))",
        "m.role IN (SELECT jsonb_array_elements_text(c.roles::jsonb))",
        "JSON_CONTAINS(c.roles, JSON_QUOTE(m.role))",
    ),
    "char_length": ("length", "char_length", "char_length"),
    "for_update": ("", " FOR UPDATE", " FOR UPDATE"),  # SQLite needs no lock: only one connection writes
    "overriding_identity": ("", " OVERRIDING SYSTEM VALUE", ""),
}
_PLACEHOLDER = re.compile(r"\{([a-z_]+)(?: ([\w, ]+))?\}")
_ONLY = re.compile(r"^-- only: ([a-z ]+)$", re.MULTILINE)


def in_dialect(sql: str, dialect: Dialect) -> str:
    """Returns the migration in the SQL of this database; empty if there is nothing to do."""
    paragraphs = [part for part in re.split(r"\n{2,}", sql) if _is_for(part, dialect)]
    if all(line.startswith("--") for part in paragraphs for line in part.splitlines()):
        return ""
    return replace_placeholders("\n\n".join(paragraphs).rstrip("\n") + "\n", dialect)


def replace_placeholders(sql: str, dialect: Dialect) -> str:
    return _PLACEHOLDER.sub(lambda match: _word(match, dialect), sql)


def _is_for(paragraph: str, dialect: Dialect) -> bool:
    only = _ONLY.search(paragraph)
    return only is None or dialect in only[1].split()


def _word(match: re.Match[str], dialect: Dialect) -> str:
    word = _WORDS[match[1]][DIALECTS.index(dialect)]
    if "#" in word and match[2] is None:
        raise ValueError(f"the placeholder {match[0]} needs an argument")
    return word.replace("#", match[2] or "")
