"""Write, audit, publish: a batch is written to a branch, looked at there, and shown to readers only if it is sound."""

from dataclasses import dataclass

from nunatak_spark.demo import sample_data
from nunatak_spark.demo.demo_context import Stage

BRANCH = "audit"
TABLE = "silver.orders"
# What must be 0 on the branch before readers may see it.
RULES = {
    "amounts that are not positive": "count_if(amount IS NULL OR amount <= 0)",
    "unknown countries": f"count_if(country NOT IN ({', '.join(map(repr, sample_data.COUNTRIES))}))",
    "orders that are there twice": "count(*) - count(DISTINCT order_id)",
    "orders without a customer": "count_if(customer IS NULL)",
}


@dataclass(frozen=True)
class Audit:
    """What the rules found on the branch, and what readers of the table saw before and after."""

    violations: dict[str, int]
    rows_on_branch: int
    rows_before: int
    rows_after: int

    @property
    def passed(self) -> bool:
        return not any(self.violations.values())

    @property
    def published(self) -> bool:
        return self.rows_after > self.rows_before


def publish(stage: Stage, *, spoiled: bool) -> Audit:
    """Write the next morning's orders to the branch; main moves to it if the audit passes, else the branch goes."""
    table = stage.name(TABLE)
    before = _count(stage, table)
    stage.spark.sql(f"ALTER TABLE {table} CREATE BRANCH {BRANCH}")
    batch = sample_data.new_orders(stage.size, spoiled=spoiled)
    stage.run("writing to the branch", f"INSERT INTO {table}.branch_{BRANCH} {batch}")
    found = stage.row(f"SELECT {', '.join(RULES.values())} FROM {table}.branch_{BRANCH}")
    violations = dict(zip(RULES, map(int, found), strict=True))
    on_branch = _count(stage, f"{table}.branch_{BRANCH}")
    if not any(violations.values()):
        stage.spark.sql(f"CALL {stage.catalog}.system.fast_forward('{stage.root}.{TABLE}', 'main', '{BRANCH}')")
    stage.spark.sql(f"ALTER TABLE {table} DROP BRANCH {BRANCH}")
    return Audit(violations, on_branch, before, _count(stage, table))


def _count(stage: Stage, table: str) -> int:
    return int(stage.value(f"SELECT count(*) FROM {table}"))
