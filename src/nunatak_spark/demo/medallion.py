"""Bronze, silver and gold: raw events as they arrive, cleaned by MERGE, and aggregated."""

import datetime
from dataclasses import dataclass
from decimal import Decimal

from nunatak_spark.demo import sample_data
from nunatak_spark.demo.demo_context import DemoContext

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
    """How many events arrived, and how many are resent or unreadable."""

    events: int
    resent: int
    unreadable: int


@dataclass(frozen=True)
class Silver:
    """How many orders there are, and how many the second MERGE corrected."""

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
    """The whole table, sorted."""

    rows: tuple[DayRevenue, ...]

    @property
    def revenue(self) -> Decimal:
        return sum((row.revenue for row in self.rows), Decimal(0))


def make_layers(context: DemoContext) -> None:
    """Creates the namespaces and empty tables."""
    # Over REST: Spark reserves the property `owner`.
    context.client.create_namespace((context.root,), {"owner": OWNER})
    for layer, meaning in LAYERS.items():
        context.client.create_namespace(context.levels(layer), {"owner": OWNER, "comment": meaning})
    for table, columns in {"bronze.events": EVENTS, "silver.orders": ORDERS, "gold.revenue": REVENUE}.items():
        context.spark.sql(f"CREATE TABLE {context.name(table)} {columns}")


def land(context: DemoContext) -> Bronze:
    """Appends all events to bronze."""
    events = context.name("bronze.events")
    context.run("landing orders", f"INSERT INTO {events} {sample_data.raw_orders(context.size)}")
    context.run("landing corrections", f"INSERT INTO {events} {sample_data.raw_corrections(context.size)}")
    row = context.row(f"""
        SELECT count(*) AS events, count_if(kind = 'order') - count(DISTINCT order_id) AS resent,
            count_if(amount IS NULL) AS unreadable
        FROM ({sample_data.parse_orders(events).replace("SELECT order_id", "SELECT kind, order_id", 1)})""")
    return Bronze(row.events, row.resent, row.unreadable)


def clean(context: DemoContext) -> Silver:
    """Merges orders, then corrections; MERGE keeps the newest row of each order."""
    _merge(context, "order", "merging orders")
    before = _last_change(context)
    _merge(context, "correction", "merging corrections")
    orders, corrected = context.row(
        f"SELECT count(*), count_if(changed_at > '{before}') FROM {context.name('silver.orders')}"
    )
    return Silver(orders, corrected)


def _merge(context: DemoContext, kind: str, doing: str) -> None:
    newest = sample_data.clean_orders(f"{context.name('bronze.events')} WHERE kind = '{kind}'")
    context.run(
        doing,
        f"""
        MERGE INTO {context.name("silver.orders")} AS known USING ({newest}) AS news ON known.order_id = news.order_id
        WHEN MATCHED AND news.changed_at > known.changed_at THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *""",
    )


def _last_change(context: DemoContext) -> str:
    """Returns the time of the newest change."""
    return str(context.value(f"SELECT max(changed_at) FROM {context.name('silver.orders')}"))


def aggregate(context: DemoContext) -> Gold:
    """Overwrites gold from silver in one commit."""
    context.run(
        "summing up",
        f"""
        INSERT OVERWRITE {context.name("gold.revenue")}
        SELECT cast(ordered_at AS date) AS day, country, count(*), count(DISTINCT customer), sum(amount)
        FROM {context.name("silver.orders")} GROUP BY day, country ORDER BY day, country""",
    )
    rows = context.spark.sql(
        f"SELECT day, country, orders, revenue FROM {context.name('gold.revenue')} ORDER BY day, country"
    ).collect()
    return Gold(tuple(DayRevenue(*row) for row in rows))
