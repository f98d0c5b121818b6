"""Transactions over three tables while the server is killed: each is in all of its tables or in none (F16)."""

import dataclasses
import random
from pathlib import Path

from tests.support.history import findings
from tests.support.workload import (
    Run,
    Writer,
    create_tables,
    find_tables,
    kill_again_and_again,
    mortal_server,
    seeded,
)

KILLS = 12
WRITERS = 4
NAMES = ("orders", "lines", "totals")


def test_a_transaction_of_a_killed_server_is_whole_or_absent(tmp_path: Path) -> None:
    """MISSION: 002-30, 002-32"""
    chance = seeded("transactions")
    with mortal_server(tmp_path / "data") as server:
        create_tables(server.port, NAMES)
        run = Run(
            [
                # Every other writer names the tables in the other order, and every other one uses keys.
                Writer(
                    number,
                    server.port,
                    NAMES if number % 2 else NAMES[::-1],
                    random.Random(chance.random()),
                    keyed=number < WRITERS // 2,
                    all_tables_at_once=True,
                )
                for number in range(WRITERS)
            ]
        )

        with run.working():
            kill_again_and_again(server, run, chance, KILLS)

        tables = find_tables(server.data, server.port, NAMES)
        print(run.summary())
        assert [attempt for attempt in run.attempts if (attempt.status or 0) >= 500] == []
        assert findings(run.attempts, run.reads, tables) == []

    intents = [[table.snapshots[snapshot_id]["summary"]["intent"] for snapshot_id in table.chain] for table in tables]
    assert intents[0] == intents[1] == intents[2]
    assert len(intents[0]) > KILLS

    # The canary: a transaction that is in two of its three tables must be found.
    last = tables[0]
    torn = dataclasses.replace(last, metadata={**last.metadata, "snapshots": last.metadata["snapshots"][:-1]})
    found = findings(run.attempts, run.reads, [torn, *tables[1:]])
    assert any(sentence.startswith(f"torn: {intents[0][-1]} is in") for sentence in found)
