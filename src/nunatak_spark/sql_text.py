"""How names and values become SQL text, and the session settings under which Spark reads that text back unchanged."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark replaces ${env:X}, ${system:X} and ${spark.x} in the text of every statement, name, expression and view, also
# inside quotes: a table called t${env:NUNATAK_TOKEN} would make Spark print the token. Names come from users.
SUBSTITUTE = "spark.sql.variable.substitute"
# With this on, Spark takes the backslashes of a literal as they stand, so `literal` would write other values.
ESCAPED_LITERALS = "spark.sql.parser.escapedStringLiterals"
REQUIRED_SETTINGS = {SUBSTITUTE: "false", ESCAPED_LITERALS: "false"}
# What Spark would replace if it replaced anything, a quote and a backslash: it has to come back as it is.
PROBE = "${system:java.version} ${env:PATH} ${spark.app.id} ${spark:spark.app.id} `'\"\\n\\"
FIX = f"Let sessions set {SUBSTITUTE}=false and {ESCAPED_LITERALS}=false, or set both on the Spark server."

SIMPLE_TYPE = re.compile(
    r"[a-z_][a-z0-9_]*( precision| with(out)? (local )?time zone)?( collate [a-z0-9_]+)?"
    r"|(decimal|dec|numeric|char|character|varchar)\s*\(\s*\d+\s*(,\s*\d+\s*)?\)",
    re.IGNORECASE,
)


def quote_identifier(name: str) -> str:
    """An identifier as SQL names it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def quote_name(levels: Iterable[str]) -> str:
    """A name of several levels, such as catalog, namespace and table."""
    return ".".join(map(quote_identifier, levels))


def literal(text: str) -> str:
    """A string as Spark's SQL reads it back, in a session that `protect_sql_text` has prepared."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def protect_sql_text(spark: "SparkSession") -> None:
    """Make the session take SQL text literally. CannotRun if it does not: names of users would be program text.

    Every session passes here before a statement is sent: those that we start, those of a Spark Connect server and
    those that a program hands over. A setting that reads back right can be without effect, so the text is tried.
    """
    for key, value in REQUIRED_SETTINGS.items():
        try:
            spark.conf.set(key, value)
            found = spark.conf.get(key, None)
        except Exception as error:
            raise CannotRun(f"Spark does not let {key} be set: {failure_reason(error)}", fix=FIX) from error
        if str(found).strip().lower() != value:
            raise CannotRun(f"Spark keeps {key}={found} although it was set to {value}", fix=FIX)
    (row,) = spark.sql(f"SELECT {literal(PROBE)} AS probe").collect()
    if row[0] != PROBE:
        raise CannotRun("Spark changes the text of SQL statements before it runs them", fix=FIX)


def require_type_text(kind: str) -> str:
    """The same text if it is the name of a data type and nothing else; a source's catalog may say anything there."""
    if not _is_type(kind.strip()):
        raise CannotRun(f"{kind[:100]!r} is not a data type that Spark knows", fix="Look at the table's columns.")
    return kind


def _is_type(kind: str) -> bool:
    """`array<…>`, `map<…, …>` and `struct<name: …>` around simple types."""
    outer = re.fullmatch(r"(array|map|struct)\s*<(.*)>", kind, re.IGNORECASE | re.DOTALL)
    if outer is None:
        return SIMPLE_TYPE.fullmatch(kind) is not None
    parts = _split_outside_brackets(outer[2], ",")
    if outer[1].lower() == "struct":
        fields = [_split_outside_brackets(part, ":", most=2) for part in parts] if outer[2].strip() else []
        return all(len(field) == 2 and _is_field_name(field[0]) and _is_type(field[1].strip()) for field in fields)
    return len(parts) == (1 if outer[1].lower() == "array" else 2) and all(_is_type(part.strip()) for part in parts)


def _is_field_name(text: str) -> bool:
    # Unquoted, a name is what the parser of Hive takes for one: no space, no quote, nothing that ends a comment.
    return re.fullmatch(r"`([^`]|``)+`|[^\s`'\"\\<>(),:;/*\-]+", text.strip()) is not None


def _split_outside_brackets(text: str, separator: str, most: int | None = None) -> list[str]:
    """At separators outside of brackets and backticks."""
    parts, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == "`"
        depth += 0 if is_quoted else (letter in "<(") - (letter in ">)")
        if letter == separator and not depth and not is_quoted and (most is None or len(parts) < most):
            parts.append("")
        else:
            parts[-1] += letter
    return parts
