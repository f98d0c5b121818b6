"""Write, audit, publish: writes a batch to a branch, audits it there, and publishes it only if it passes."""

from dataclasses import dataclass

from nunatak_spark.demo import sample_data
from nunatak_spark.demo.demo_context import DemoContext

BRANCH = "audit"
TABLE = "silver.orders"
# Counts that must be 0 on the branch before it is published.
RULES = {
    "amounts that are not positive": "count_if(amount IS NULL OR amount <= 0)",
    "unknown countries": f"count_if(country NOT IN ({', '.join(map(repr, sample_data.COUNTRIES))}))",
    "duplicate orders": "count(*) - count(DISTINCT order_id)",
    "orders without a customer": "count_if(customer IS NULL)",
}


@dataclass(frozen=True)
class Audit:
    """The violations on the branch, and the rows that readers saw before and after."""

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


def publish(context: DemoContext, *, spoiled: bool) -> Audit:
    """Writes the next morning's orders to a branch; fast-forwards main if the audit passes, then drops the branch."""
    table = context.name(TABLE)
    before = _count(context, table)
    context.spark.sql(f"ALTER TABLE {table} CREATE BRANCH {BRANCH}")
    batch = sample_data.new_orders(context.size, spoiled=spoiled)
    context.run("writing to the branch", f"INSERT INTO {table}.branch_{BRANCH} {batch}")
    found = context.row(f"SELECT {', '.join(RULES.values())} FROM {table}.branch_{BRANCH}")
    violations = dict(zip(RULES, map(int, found), strict=True))
    on_branch = _count(context, f"{table}.branch_{BRANCH}")
    if not any(violations.values()):
        context.spark.sql(f"CALL {context.catalog}.system.fast_forward('{context.root}.{TABLE}', 'main', '{BRANCH}')")
    context.spark.sql(f"ALTER TABLE {table} DROP BRANCH {BRANCH}")
    return Audit(violations, on_branch, before, _count(context, table))


def _count(context: DemoContext, table: str) -> int:
    return int(context.value(f"SELECT count(*) FROM {table}"))
