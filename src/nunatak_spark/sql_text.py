"""Writes names and values as SQL text, and sets the session settings under which Spark reads that text unchanged."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark substitutes ${env:X}, ${system:X} and ${spark.x} in every statement, expression and view, also inside quotes:
# a table named t${env:NUNATAK_TOKEN} would make Spark print the token. Names come from users.
SUBSTITUTE = "spark.sql.variable.substitute"
# If true, Spark does not unescape backslashes in literals, so the escapes of `literal` would change values.
ESCAPED_LITERALS = "spark.sql.parser.escapedStringLiterals"
REQUIRED_SETTINGS = {SUBSTITUTE: "false", ESCAPED_LITERALS: "false"}
# Substitutable variables, quotes and backslashes: the session must return this text unchanged.
PROBE = "${system:java.version} ${env:PATH} ${spark.app.id} ${spark:spark.app.id} `'\"\\n\\"
FIX = f"Let sessions set {SUBSTITUTE}=false and {ESCAPED_LITERALS}=false, or set both on the Spark server."

SIMPLE_TYPE = re.compile(
    r"[a-z_][a-z0-9_]*( precision| with(out)? (local )?time zone)?( collate [a-z0-9_]+)?"
    r"|(decimal|dec|numeric|char|character|varchar)\s*\(\s*\d+\s*(,\s*\d+\s*)?\)",
    re.IGNORECASE,
)


def quote_identifier(name: str) -> str:
    """Quotes an identifier for SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def quote_name(levels: Iterable[str]) -> str:
    """Quotes a name of several levels, such as catalog, namespace and table."""
    return ".".join(map(quote_identifier, levels))


def literal(text: str) -> str:
    """Returns a string literal of Spark SQL, valid in a session prepared by `protect_sql_text`."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def protect_sql_text(spark: "SparkSession") -> None:
    """Makes the session take SQL text literally; raises CannotRun if it does not, because names of users would be code.

    Every session passes here before the first statement: our own, those of a Spark Connect server and those of a
    calling program. A setting that reads back right may still have no effect, so a probe statement is run.
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
    """Returns the text if it is a data type and nothing else; raises CannotRun.

    Source catalogs may contain any text.
    """
    if not _is_type(kind.strip()):
        raise CannotRun(f"{kind[:100]!r} is not a data type that Spark knows", fix="Look at the table's columns.")
    return kind


def _is_type(kind: str) -> bool:
    """Returns whether the text is a simple type, or `array<…>`, `map<…, …>` or `struct<name: …>` of types."""
    outer = re.fullmatch(r"(array|map|struct)\s*<(.*)>", kind, re.IGNORECASE | re.DOTALL)
    if outer is None:
        return SIMPLE_TYPE.fullmatch(kind) is not None
    parts = _split_outside_brackets(outer[2], ",")
    if outer[1].lower() == "struct":
        fields = [_split_outside_brackets(part, ":", most=2) for part in parts] if outer[2].strip() else []
        return all(len(field) == 2 and _is_field_name(field[0]) and _is_type(field[1].strip()) for field in fields)
    return len(parts) == (1 if outer[1].lower() == "array" else 2) and all(_is_type(part.strip()) for part in parts)


def _is_field_name(text: str) -> bool:
    # Unquoted names as Hive's parser accepts them: no space, no quote, nothing that starts or ends a comment.
    return re.fullmatch(r"`([^`]|``)+`|[^\s`'\"\\<>(),:;/*\-]+", text.strip()) is not None


def _split_outside_brackets(text: str, separator: str, most: int | None = None) -> list[str]:
    """Splits at separators that are outside of brackets and backticks."""
    parts, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == "`"
        depth += 0 if is_quoted else (letter in "<(") - (letter in ">)")
        if letter == separator and not depth and not is_quoted and (most is None or len(parts) < most):
            parts.append("")
        else:
            parts[-1] += letter
    return parts
