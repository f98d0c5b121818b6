"""Bronze, silver and gold: raw events are kept as they came, cleaned by MERGE, and summed up."""

import datetime
from dataclasses import dataclass
from decimal import Decimal

from nunatak_spark.demo import sample_data
from nunatak_spark.demo.demo_context import Stage

OWNER = "data-team"
LAYERS = {
    "bronze": "raw, as it came",
    "silver": "cleaned, each order once",
    "gold": "what people ask for",
}
EVENTS = """(kind STRING, order_id STRING, sent_at STRING, customer STRING, country STRING, amount STRING,
    received_at TIMESTAMP) USING iceberg PARTITIONED BY (kind)"""
ORDERS = """(order_id STRING NOT NULL, ordered_at TIMESTAMP, customer STRING, country STRING, amount DECIMAL(12,2),
    changed_at TIMESTAMP) USING iceberg PARTITIONED BY (months(ordered_at))"""
REVENUE = "(day DATE, country STRING, orders BIGINT, customers BIGINT, revenue DECIMAL(18,2)) USING iceberg"


@dataclass(frozen=True)
class Bronze:
    """How many events arrived, and what is wrong with them."""

    events: int
    resent: int
    unreadable: int


@dataclass(frozen=True)
class Silver:
    """How many orders there are, and how many of them were put right by the second MERGE."""

    orders: int
    corrected: int


@dataclass(frozen=True)
class DayRevenue:
    day: datetime.date
    country: str
    orders: int
    revenue: Decimal


@dataclass(frozen=True)
class Gold:
    """The whole table, in order."""

    rows: tuple[DayRevenue, ...]

    @property
    def revenue(self) -> Decimal:
        return sum((row.revenue for row in self.rows), Decimal(0))


def make_layers(stage: Stage) -> None:
    """The namespaces and their tables, all empty."""
    # Over REST: Spark keeps the property `owner` to itself.
    stage.client.create_namespace((stage.root,), {"owner": OWNER})
    for layer, meaning in LAYERS.items():
        stage.client.create_namespace(stage.levels(layer), {"owner": OWNER, "comment": meaning})
    for table, columns in {"bronze.events": EVENTS, "silver.orders": ORDERS, "gold.revenue": REVENUE}.items():
        stage.spark.sql(f"CREATE TABLE {stage.name(table)} {columns}")


def land(stage: Stage) -> Bronze:
    """Append everything to bronze; nothing is judged yet."""
    events = stage.name("bronze.events")
    stage.run("landing orders", f"INSERT INTO {events} {sample_data.raw_orders(stage.size)}")
    stage.run("landing corrections", f"INSERT INTO {events} {sample_data.raw_corrections(stage.size)}")
    row = stage.row(f"""
        SELECT count(*) AS events, count_if(kind = 'order') - count(DISTINCT order_id) AS resent,
            count_if(amount IS NULL) AS unreadable
        FROM ({sample_data.readable(events).replace("SELECT order_id", "SELECT kind, order_id", 1)})""")
    return Bronze(row.events, row.resent, row.unreadable)


def clean(stage: Stage) -> Silver:
    """Orders first and corrections second, as they came; MERGE keeps one row for each order, the newest."""
    _merge(stage, "order", "merging orders")
    before = _changed(stage)
    _merge(stage, "correction", "merging corrections")
    orders, corrected = stage.row(
        f"SELECT count(*), count_if(changed_at > '{before}') FROM {stage.name('silver.orders')}"
    )
    return Silver(orders, corrected)


def _merge(stage: Stage, kind: str, doing: str) -> None:
    newest = sample_data.cleaned(f"{stage.name('bronze.events')} WHERE kind = '{kind}'")
    stage.run(
        doing,
        f"""
        MERGE INTO {stage.name("silver.orders")} AS known USING ({newest}) AS news ON known.order_id = news.order_id
        WHEN MATCHED AND news.changed_at > known.changed_at THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *""",
    )


def _changed(stage: Stage) -> str:
    """When the newest order was last changed."""
    return str(stage.value(f"SELECT max(changed_at) FROM {stage.name('silver.orders')}"))


def aggregate(stage: Stage) -> Gold:
    """Replace gold by what silver says now, in one commit."""
    stage.run(
        "summing up",
        f"""
        INSERT OVERWRITE {stage.name("gold.revenue")}
        SELECT cast(ordered_at AS date) AS day, country, count(*), count(DISTINCT customer), sum(amount)
        FROM {stage.name("silver.orders")} GROUP BY day, country ORDER BY day, country""",
    )
    rows = stage.spark.sql(
        f"SELECT day, country, orders, revenue FROM {stage.name('gold.revenue')} ORDER BY day, country"
    ).collect()
    return Gold(tuple(DayRevenue(*row) for row in rows))
