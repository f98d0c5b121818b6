"""The same question to the gold table through Spark, PyIceberg and DuckDB; each reads the files by itself."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import duckdb
from pyiceberg.catalog.rest import RestCatalog

from nunatak_spark.demo.demo_context import Stage, timed

TABLE = "gold.revenue"
QUERY = "SELECT country, sum(orders), sum(revenue) FROM {table} GROUP BY country ORDER BY country"
EXTENSIONS = ("avro", "httpfs", "iceberg")  # iceberg needs the other two, so they are loaded first

Line = tuple[str, int, str]
"""A country, its orders, and its revenue as text with two digits behind the point."""


@dataclass(frozen=True)
class Answer:
    engine: str
    seconds: float
    lines: tuple[Line, ...]


def ask_all(stage: Stage) -> tuple[Answer, ...]:
    return tuple(_asked(stage, engine, ask) for engine, ask in ENGINES.items())


def agree(answers: tuple[Answer, ...]) -> bool:
    """Whether all say the same, and something."""
    return len({answer.lines for answer in answers}) == 1 and bool(answers[0].lines)


def _asked(stage: Stage, engine: str, ask: Callable[[Stage], list[Line]]) -> Answer:
    with timed() as seconds:
        lines = ask(stage)
    return Answer(engine, seconds[0], tuple(lines))


def _spark(stage: Stage) -> list[Line]:
    rows = stage.spark.sql(QUERY.format(table=stage.name(TABLE))).collect()
    return [(row[0], int(row[1]), f"{row[2]:.2f}") for row in rows]


def _pyiceberg(stage: Stage) -> list[Line]:
    with closing(RestCatalog(stage.catalog, uri=stage.uri)) as catalog:
        rows = catalog.load_table(stage.levels(TABLE)).scan(selected_fields=("country", "orders", "revenue")).to_arrow()
    summed = rows.group_by("country").aggregate([("orders", "sum"), ("revenue", "sum")]).sort_by("country")
    return [(row["country"], row["orders_sum"], f"{row['revenue_sum']:.2f}") for row in summed.to_pylist()]


def _duckdb(stage: Stage) -> list[Line]:
    with closing(duckdb.connect(config={"autoinstall_known_extensions": "false"})) as connection:
        for name in EXTENSIONS:
            (extension,) = Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH '' AS lake (TYPE ICEBERG, ENDPOINT '{stage.uri}', AUTHORIZATION_TYPE 'none')")
        namespace = ".".join(stage.levels(TABLE)[:-1])
        rows = connection.execute(QUERY.format(table=f'lake."{namespace}".revenue')).fetchall()
    return [(row[0], int(row[1]), f"{row[2]:.2f}") for row in rows]


ENGINES = {"Spark": _spark, "PyIceberg": _pyiceberg, "DuckDB": _duckdb}
