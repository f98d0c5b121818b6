"""L3: compares engines; Spark, PyIceberg and DuckDB answer the same queries about the target independently.

An engine that cannot answer, because it is not installed or does not support a type, is reported with its reason. At
least two must have answered everything.
"""

import contextlib
import functools
import importlib.resources
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from nunatak_spark.failure_reason import failure_reason, throwables
from nunatak_spark.fingerprint import fingerprint_settings
from nunatak_spark.migration import engine_queries
from nunatak_spark.migration.engine_queries import ColumnMeasure, CountFilter, Dialect, QueryColumn, SampleRows
from nunatak_spark.migration.model import LevelResult, MigrationFinding, TablePair
from nunatak_spark.migration.optional_packages import load_module
from nunatak_spark.migration.target_access import login_settings, rest_catalog
from nunatak_spark.redaction import redact_text

Json = dict[str, Any]
Answers = dict[str, str | None]

IN_MEMORY_BYTES = 2 * 2**30  # PyIceberg reads the whole table into memory
SHOWN_CHARACTERS = 200
ENOUGH = 2
ATTACHED = itertools.count(1)
DUCKDB_EXTENSIONS = ("avro", "httpfs", "iceberg")  # iceberg depends on the other two: keep the order


class Engine(Protocol):
    """An engine that answers the queries."""

    def measure(self, asked: Sequence[ColumnMeasure]) -> tuple[int, list[Any]]: ...

    def rows(self, asked: SampleRows) -> list[list[Any]]: ...

    def count(self, asked: Sequence[CountFilter]) -> list[int]: ...


@dataclass
class SqlEngine:
    """An engine that runs SQL and returns Arrow tables."""

    run: Callable[[str], Any]
    table: str
    dialect: Dialect
    statements: list[str] = field(default_factory=list)

    def measure(self, asked: Sequence[ColumnMeasure]) -> tuple[int, list[Any]]:
        (row,) = self._rows(engine_queries.measures_sql(asked, self.table, self.dialect))
        return int(row[0]), row[1:]

    def rows(self, asked: SampleRows) -> list[list[Any]]:
        return self._rows(engine_queries.rows_sql(asked, self.table, self.dialect))

    def count(self, asked: Sequence[CountFilter]) -> list[int]:
        if not asked:
            return []
        return [
            int(count) for _, count in sorted(self._rows(engine_queries.filters_sql(asked, self.table, self.dialect)))
        ]

    def _rows(self, statement: str) -> list[list[Any]]:
        self.statements.append(statement)
        return _lists(self.run(statement))


@dataclass
class PyIcebergEngine:
    """PyIceberg finds and reads the files, Arrow computes."""

    table: Any

    def measure(self, asked: Sequence[ColumnMeasure]) -> tuple[int, list[Any]]:
        data = self.table.scan().to_arrow()
        return data.num_rows, [_compute_measure(data, one) for one in asked]

    def rows(self, asked: SampleRows) -> list[list[Any]]:
        arrow, compute = load_module("pyarrow", "L3"), load_module("pyarrow.compute", "L3")
        names = tuple(dict.fromkeys(column.path[0] for column in (*asked.columns, *asked.order)))
        data = self.table.scan(selected_fields=names).to_arrow()
        sorted_by = {}
        for i, column in enumerate(asked.order):
            values = _values(data, column)
            sorted_by[f"there{i}"] = values.is_valid().cast("int8")  # nulls first
            sorted_by[f"value{i}"] = values
        keys = [(key, "ascending") for key in sorted_by]
        places = compute.sort_indices(arrow.table(sorted_by), sort_keys=keys)[: engine_queries.ROWS]
        taken = data.take(places)
        values = [_values(taken, column) for column in asked.columns]
        return _lists(arrow.table(values, names=[f"v{i}" for i in range(len(values))]))

    def count(self, asked: Sequence[CountFilter]) -> list[int]:
        at_most = load_module("pyiceberg.expressions", "L3").LessThanOrEqual
        return [self.table.scan(row_filter=at_most(one.column.path[0], _literal(one.value))).count() for one in asked]


def compare_engines(pair: TablePair, document: Json) -> LevelResult:
    """Asks every engine and compares the answers."""
    asked = EngineComparison(engine_queries.columns_of(document))
    with contextlib.ExitStack() as stack:
        for name, start in ENGINES.items():
            asked.ask_engine(name, functools.partial(stack.enter_context, start(pair, document)))
    return asked.outcome()


# Comparing


@dataclass
class EngineComparison:
    """The queries, the answers so far, and the differences."""

    columns: tuple[QueryColumn, ...]
    answers: dict[str, Answers] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    first: str = ""
    measures: tuple[ColumnMeasure, ...] = ()
    rows: SampleRows | None = None
    filters: tuple[CountFilter, ...] = ()

    def ask_engine(self, name: str, start: Callable[[], Engine]) -> None:
        """Asks one engine all queries; the measures of the first engine decide which rows and filters all
        are asked for.
        """
        try:
            engine = start()
            self.measures = self.measures or engine_queries.choose_measures(self.columns)
            rows, measured = engine.measure(self.measures)
            answers: Answers = {"rows": str(rows)}
            answers |= {
                one.question: engine_queries.normalize_value(value)
                for one, value in zip(self.measures, measured, strict=True)
            }
            if not self.first:
                self.first = name
                self.rows = engine_queries.choose_rows(self.columns, answers, rows)
                self.filters = engine_queries.choose_filters(self.columns, answers)
            if self.rows is not None:
                answers[self.rows.question] = engine_queries.normalize_value(engine.rows(self.rows))
            counted = engine.count(self.filters)
            answers |= {one.question: str(count) for one, count in zip(self.filters, counted, strict=True)}
            self.answers[name] = answers
            self.statements += getattr(engine, "statements", [])
        except Exception as error:  # record the failure of one engine and go on
            from_java = next(throwables(error), None) is not None
            text = failure_reason(error) if from_java else " ".join(str(error).split())
            self.cannot[name] = text[:SHOWN_CHARACTERS] or type(error).__name__

    def outcome(self) -> LevelResult:
        findings = list(self._disagreements())
        if len(self.answers) < ENOUGH:
            reasons = "; ".join(f"{name} could not: {redact_text(reason)}" for name, reason in self.cannot.items())
            asked = len(self.answers) + len(self.cannot)
            text = f"{len(self.answers)} of {asked} engines answered; {reasons}"
            findings.append(MigrationFinding("too-few-engines", text))
        agreed = next(iter(self.answers.values()), {})
        refused = {name: f"could not: {redact_text(reason)}" for name, reason in self.cannot.items()}
        facts = {
            "engines": {**dict.fromkeys(self.answers, "answered"), **refused},
            "questions": len(agreed),
            "answers": {question: _short(answer) for question, answer in agreed.items()},
        }
        return LevelResult(tuple(findings), facts, tuple(self.statements))

    def _disagreements(self) -> Iterator[MigrationFinding]:
        if not self.answers:
            return
        first, *others = self.answers
        by_question = {one.question: one for one in self.measures}
        for question, answer in self.answers[first].items():
            measure = by_question.get(question)
            for other in others:
                theirs = self.answers[other][question]
                if not engine_queries.answers_agree(measure, answer, theirs, self.answers[first]):
                    text = f"{question}: {first} says {_short(answer)}, {other} says {_short(theirs)}"
                    yield MigrationFinding("engines-disagree", text, measure.column.name if measure else "")


def _short(answer: str | None) -> str:
    text = "null" if answer is None else answer
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


# The engines


@contextlib.contextmanager
def _spark(pair: TablePair, _: Json) -> Iterator[Engine]:
    with fingerprint_settings(pair.spark):
        yield SqlEngine(lambda statement: pair.spark.sql(statement).toArrow(), pair.target_name, engine_queries.SPARK)


@contextlib.contextmanager
def _pyiceberg(pair: TablePair, document: Json) -> Iterator[Engine]:
    size = _current_bytes(document)
    if size > IN_MEMORY_BYTES:
        raise MemoryError(f"the table's files are {size} bytes, and PyIceberg reads all of them into memory")
    load_module("pyarrow", "L3")
    with rest_catalog(pair) as catalog:
        yield PyIcebergEngine(catalog.load_table(pair.planned.target))


@contextlib.contextmanager
def _duckdb(pair: TablePair, _: Json) -> Iterator[Engine]:
    duckdb = load_module("duckdb", "L3")
    login, name = login_settings(pair.spark, pair.catalog), f"target{next(ATTACHED)}"
    with contextlib.closing(_load_duckdb().cursor()) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            _attach(connection, login, name)
        except duckdb.Error as error:  # the message quotes the statement, which contains secrets
            raise RuntimeError(remove_login_secrets(str(error), login)) from None
        try:
            *namespace, table = pair.planned.target
            quote = engine_queries.DUCKDB.quote_name
            full = f"{name}.{quote('.'.join(namespace))}.{quote(table)}"
            yield SqlEngine(
                lambda statement: connection.execute(statement).to_arrow_table(), full, engine_queries.DUCKDB
            )
        finally:
            connection.execute(f"DETACH {name}")
            connection.execute(f"DROP SECRET IF EXISTS {name}_login")


@functools.cache
def _load_duckdb() -> Any:
    """Returns one in-memory database for all tables: loading the extensions takes longer than reading a small table."""
    connection = load_module("duckdb", "L3").connect(config={"autoinstall_known_extensions": "false"})
    for name in DUCKDB_EXTENSIONS:
        connection.execute(f"LOAD '{_extension(name)}'")
    return connection


ENGINES: Mapping[str, Callable[[TablePair, Json], "contextlib.AbstractContextManager[Engine]"]] = {
    "spark": _spark,
    "pyiceberg": _pyiceberg,
    "duckdb": _duckdb,
}


def _current_bytes(document: Json) -> int:
    current = document.get("current-snapshot-id")
    sizes = {one["snapshot-id"]: one.get("summary", {}) for one in document.get("snapshots") or []}
    return int(sizes.get(current, {}).get("total-files-size", 0))


def _extension(name: str) -> str:
    """Returns the path of the extension in its wheel, so that DuckDB downloads nothing; else its name."""
    try:
        folder = Path(str(importlib.resources.files(f"duckdb_extension_{name}")))
        return str(next(folder.rglob(f"{name}.duckdb_extension")))
    except (ModuleNotFoundError, StopIteration):
        return name


def _attach(connection: Any, login: Mapping[str, str], name: str) -> None:
    """Attaches the catalog for one table, so that DuckDB caches nothing between tables."""
    literal, secret_name = engine_queries.DUCKDB.literal, f"{name}_login"
    options = f"TYPE iceberg, ENDPOINT {literal(login['uri'])}"
    if "credential" in login:
        client_id, _, secret = login["credential"].partition(":")
        server = login.get("oauth2-server-uri", f"{login['uri'].rstrip('/')}/v1/oauth/tokens")
        connection.execute(
            f"CREATE SECRET {secret_name} (TYPE iceberg, CLIENT_ID {literal(client_id)}, "
            f"CLIENT_SECRET {literal(secret)}, OAUTH2_SERVER_URI {literal(server)})"
        )
        options += f", SECRET {secret_name}"
    elif "token" in login:
        connection.execute(f"CREATE SECRET {secret_name} (TYPE iceberg, TOKEN {literal(login['token'])})")
        options += f", SECRET {secret_name}"
    else:
        options += ", AUTHORIZATION_TYPE 'none'"
    connection.execute(f"ATTACH {literal(login.get('warehouse', ''))} AS {name} ({options})")


def remove_login_secrets(text: str, login: Mapping[str, str]) -> str:
    secrets = (login.get("token", ""), login.get("credential", ""), login.get("credential", "").partition(":")[2])
    for secret in filter(None, secrets):
        text = text.replace(secret, "…")
    return text


# Arrow


def _lists(table: Any) -> list[list[Any]]:
    return [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _values(data: Any, column: QueryColumn) -> Any:
    """Returns a column, or a field inside structs; UUIDs as text."""
    compute = load_module("pyarrow.compute", "L3")
    values = data.column(column.path[0])
    for name in column.path[1:]:
        values = compute.struct_field(values, name)
    if column.kind == "uuid":
        texts = [
            None if one is None else str(UUID(bytes=one) if isinstance(one, bytes) else one)
            for one in values.to_pylist()
        ]
        return load_module("pyarrow", "L3").chunked_array([texts], "string")
    return values


def _compute_measure(data: Any, measure: ColumnMeasure) -> Any:
    arrow, compute = load_module("pyarrow", "L3"), load_module("pyarrow.compute", "L3")
    values, kind = _values(data, measure.column), measure.column.kind
    present = values.drop_null()
    numbers = present.filter(compute.invert(compute.is_nan(present))) if kind == "float" else present
    match measure.of:
        case "count":
            return len(present)
        case "least" | "most":
            return compute.min_max(numbers)["min" if measure.of == "least" else "max"].as_py()
        case "distinct":
            return len(compute.unique(present))
        case "true":
            return compute.sum(present).as_py() or 0
        case "not-a-number":
            return len(present) - len(numbers)
        case "sum":
            exact = numbers.cast(arrow.decimal128(38, 0)) if kind == "integer" else numbers
            return compute.sum(exact.cast(arrow.float64()) if kind == "float" else exact).as_py()
        case "bytes":
            return compute.sum(compute.binary_length(present)).as_py()
        case _:
            ends = [(chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()) for chunk in present.chunks if len(chunk)]
            return sum(last - first for first, last in ends) if ends else None


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
