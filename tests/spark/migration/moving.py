"""A migration as tests drive it: each step opens the folder anew, as each command does."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nunatak.client import Client
from nunatak_spark.migration.cutover import cut_over, late_writes
from nunatak_spark.migration.inventory import take_inventory
from nunatak_spark.migration.migration_run import MigrationRun
from nunatak_spark.migration.model import (
    LEVELS,
    Evidence,
    LevelName,
    Migration,
    MigrationFinding,
    MigrationSource,
    MigrationTable,
    table_title,
)
from nunatak_spark.migration.parallel_verification import verify_tables
from nunatak_spark.migration.planning_rules import PlanOptions
from nunatak_spark.migration.rollback import retire, roll_back
from nunatak_spark.migration.shadow import shadow
from nunatak_spark.migration.state import open_folder_state
from nunatak_spark.migration.table_plans import plan_tables
from nunatak_spark.migration.verification import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
NAMES = itertools.count(1)


def new_name(kind: str) -> str:
    """Of a catalog and of a namespace: Spark remembers catalogs, so that none can be used twice."""
    return f"{kind}_{os.getpid()}_{next(NAMES)}"


@dataclass(frozen=True)
class Move:
    """One migration; `catalog` is the target in Spark, `token` lets us in there."""

    folder: Path
    spark: "SparkSession"
    uri: str
    catalog: str
    token: str | None = None

    def _step(self, command: str, action: Callable[[MigrationRun], Result]) -> Result:
        with open_folder_state(self.folder, command, create=True) as state:
            state.keep_target(self.uri, "")
            with MigrationRun(
                state, lambda: Client(self.uri, token=self.token), lambda: self.spark, self.catalog, os.environ
            ) as run:
                return action(run)

    def inventory(self, source: MigrationSource) -> dict[str, MigrationTable]:
        return by_name(self._step("inventory", lambda run: take_inventory(run, source)))

    def plan(self, wishes: PlanOptions | None = None) -> dict[str, MigrationTable]:
        return by_name(self._step("plan", lambda run: plan_tables(run, wishes or PlanOptions())))

    def shadow(self) -> dict[str, MigrationTable]:
        return by_name(self._step("shadow", lambda run: shadow(run, movable(run))))

    def verify(self, levels: Sequence[LevelName] = LEVELS) -> dict[str, MigrationTable]:
        return by_name(self._step("verify", lambda run: verify_tables(run, verify, movable(run), levels)))

    def cut_over(self, *, freeze: bool = True) -> dict[str, MigrationTable]:
        return by_name(self._step("cutover", lambda run: cut_over(run, verify, movable(run), freeze=freeze)))

    def roll_back(self, *, discard: bool = False, accept_loss: bool = False) -> dict[str, MigrationTable]:
        def action(run: MigrationRun) -> list[MigrationTable]:
            return roll_back(run, movable(run), discard=discard, accept_loss=accept_loss)

        return by_name(self._step("rollback", action))

    def retire(self) -> dict[str, MigrationTable]:
        return by_name(self._step("retire", lambda run: retire(run, movable(run))))

    def late_writes(self) -> dict[str, list[MigrationFinding]]:
        def action(run: MigrationRun) -> dict[str, list[MigrationFinding]]:
            found = {".".join(table.found.name): late_writes(run, table) for table in movable(run)}
            return {name: findings for name, findings in found.items() if findings}

        return self._step("status", action)

    def evidence(self, name: str) -> list[Evidence]:
        """What was found about a table, the newest of each level."""
        whole = self.whole()
        (key,) = [table_title(table.found) for table in whole.tables if ".".join(table.found.name) == name]
        return list({each.level: each for each in whole.evidence[key]}.values())

    def whole(self) -> Migration:
        return self._step("report", lambda run: run.state.whole())


def movable(run: MigrationRun) -> list[MigrationTable]:
    tables = run.state.list_tables()
    return [table for table in tables if table.planned is not None and table.planned.method != "refused"]


def by_name(tables: Sequence[MigrationTable]) -> dict[str, MigrationTable]:
    return {".".join(table.found.name): table for table in tables}


def states(tables: dict[str, MigrationTable]) -> dict[str, str]:
    """What a test compares; the problem beside the state says at once why it is another one."""
    return {name: f"{table.state} {table.problem}".strip() for name, table in tables.items()}
