"""Transactions over three tables while the server is killed: each is in all of its tables or in none (F16)."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.catalogs.process import running_server
from tests.support.history import findings, kinds_of
from tests.support.promises import show
from tests.support.workload import Run, Writer, create_tables, find_tables, kill_over, seeded

# A soak sets more.
KILLS = int(os.environ.get("NUNATAK_TEST_KILLS", "6"))
COMMITS = int(os.environ.get("NUNATAK_TEST_COMMITS", "100"))
WRITERS = 4
PART = 500  # transactions on the same tables, before their history grows too long
ROUNDS = 10  # for a canary; most need one


def writers(port: int, names: Sequence[str], chance: random.Random, count: int) -> Run:
    """Every other one names the tables in the other order, and every other pair uses keys."""
    return Run(
        [
            Writer(
                number,
                port,
                names if number % 2 else names[::-1],
                random.Random(chance.random()),
                keyed=number % 4 < 2,
                all_tables_at_once=True,
            )
            for number in range(count)
        ]
    )


def test_a_transaction_of_a_killed_server_is_whole_or_absent(tmp_path: Path) -> None:
    """MISSION: 002-30, 002-32"""
    chance = seeded("transactions")
    parts = -(-COMMITS // PART)
    sentences: list[str] = []
    transactions = 0
    with running_server(tmp_path / "data") as server:
        for part in range(parts):
            names = [f"{name}{part}" for name in ("orders", "lines", "totals")]
            create_tables(server.port, names)
            run = writers(server.port, names, chance, WRITERS)

            with run.working():
                kill_over(server, run, chance, -(-KILLS // parts), COMMITS // parts)

            tables = find_tables(server.data, server.port, names)
            sentences += findings(run.attempts, run.reads, tables)
            intents = [[table.snapshots[each]["summary"]["intent"] for each in table.chain] for table in tables]
            if not intents[0] == intents[1] == intents[2]:
                sentences.append(f"torn: {names} hold different transactions, or in different orders")
            sentences += [f"wrong answer: {each}" for each in run.attempts if (each.status or 0) >= 500]
            transactions += run.applied
    kinds = kinds_of(sentences)
    show(
        "F16",
        "a transaction over three tables is whole or absent, although the server is killed",
        transactions=transactions,
        kills=len(server.restarts),
        writers=WRITERS,
        **{kind: kinds[kind] for kind in ("torn", "lost", "doubled", "dangling", "gap", "wrong answer")},
    )
    assert sentences[:5] == []


def test_a_server_that_moves_tables_one_by_one_is_found_out(tmp_path: Path) -> None:
    """The canary: killed between two of them, it has torn the transaction."""
    chance = seeded("torn")
    names = ["orders", "lines", "totals"]
    kinds: Counter[str] = Counter()
    with running_server(tmp_path / "data", broken="torn-transactions") as server:
        for number in range(ROUNDS):
            round_names = [f"{name}{number}" for name in names]
            create_tables(server.port, round_names)
            run = writers(server.port, round_names, chance, 1)
            with run.working():
                kill_over(server, run, chance, 2, 4)
            kinds += kinds_of(findings(run.attempts, run.reads, find_tables(server.data, server.port, round_names)))
            if kinds["torn"]:
                break
    assert kinds["torn"], kinds
