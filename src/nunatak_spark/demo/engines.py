"""Runs the same query on the gold table with Spark, PyIceberg and DuckDB, which read the files independently."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import duckdb
from pyiceberg.catalog.rest import RestCatalog

from nunatak_spark.demo.demo_context import DemoContext, measure_seconds

TABLE = "gold.revenue"
QUERY = "SELECT country, sum(orders), sum(revenue) FROM {table} GROUP BY country ORDER BY country"
EXTENSIONS = ("avro", "httpfs", "iceberg")  # iceberg depends on the other two: keep the order

Line = tuple[str, int, str]
"""Country, orders, and revenue as text with two decimals."""


@dataclass(frozen=True)
class EngineAnswer:
    engine: str
    seconds: float
    lines: tuple[Line, ...]


def ask_all(context: DemoContext) -> tuple[EngineAnswer, ...]:
    return tuple(_time_engine(context, engine, ask) for engine, ask in ENGINES.items())


def answers_agree(answers: tuple[EngineAnswer, ...]) -> bool:
    """Returns whether all engines return the same, non-empty answer."""
    return len({answer.lines for answer in answers}) == 1 and bool(answers[0].lines)


def _time_engine(context: DemoContext, engine: str, ask: Callable[[DemoContext], list[Line]]) -> EngineAnswer:
    with measure_seconds() as seconds:
        lines = ask(context)
    return EngineAnswer(engine, seconds[0], tuple(lines))


def _spark(context: DemoContext) -> list[Line]:
    rows = context.spark.sql(QUERY.format(table=context.name(TABLE))).collect()
    return [(row[0], int(row[1]), f"{row[2]:.2f}") for row in rows]


def _pyiceberg(context: DemoContext) -> list[Line]:
    with closing(RestCatalog(context.catalog, uri=context.uri)) as catalog:
        rows = (
            catalog.load_table(context.levels(TABLE)).scan(selected_fields=("country", "orders", "revenue")).to_arrow()
        )
    summed = rows.group_by("country").aggregate([("orders", "sum"), ("revenue", "sum")]).sort_by("country")
    return [(row["country"], row["orders_sum"], f"{row['revenue_sum']:.2f}") for row in summed.to_pylist()]


def _duckdb(context: DemoContext) -> list[Line]:
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as connection:
        for name in EXTENSIONS:
            (extension,) = Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH '' AS lake (TYPE ICEBERG, ENDPOINT '{context.uri}', AUTHORIZATION_TYPE 'none')")
        namespace = ".".join(context.levels(TABLE)[:-1])
        rows = connection.execute(QUERY.format(table=f'lake."{namespace}".revenue')).fetchall()
    return [(row[0], int(row[1]), f"{row[2]:.2f}") for row in rows]


ENGINES = {"Spark": _spark, "PyIceberg": _pyiceberg, "DuckDB": _duckdb}
