"""Runs in Flink's own environment: reads properties and statements as JSON, prints the rows of each statement."""

import importlib
import json
import sys
from typing import Any

ADDRESSES = ("rest.bind-address", "rest.address", "jobmanager.bind-host", "jobmanager.rpc.address")
WORKERS = ("taskmanager.bind-host", "taskmanager.host")
WRITES = ("insert", "update", "delete")


def main() -> None:
    asked = json.load(sys.stdin)
    session = make_session(streaming=sys.argv[1] == "streaming")
    options = ", ".join(f"'{name}'='{value}'" for name, value in asked["properties"].items())
    session.execute_sql(f"CREATE CATALOG lake WITH ({options})")
    session.execute_sql("USE CATALOG lake")
    for statement in asked["statements"]:
        print("rows", json.dumps(run(session, statement), default=str), flush=True)


def make_session(*, streaming: bool) -> Any:
    configuration = importlib.import_module("pyflink.common").Configuration()
    for key in (*ADDRESSES, *WORKERS):
        configuration.set_string(key, "127.0.0.1")
    configuration.set_string("parallelism.default", "1")
    if streaming:
        configuration.set_string("execution.checkpointing.interval", "2s")  # a streaming INSERT commits at checkpoints
    table = importlib.import_module("pyflink.table")
    settings = table.EnvironmentSettings.new_instance()
    settings = settings.in_streaming_mode() if streaming else settings.in_batch_mode()
    return table.TableEnvironment.create(settings.with_configuration(configuration).build())


def run(session: Any, statement: str) -> list[list[Any]]:
    result = session.execute_sql(statement)
    if statement.lstrip().lower().startswith(WRITES):
        result.wait()
        return []
    with result.collect() as rows:
        return [list(row) for row in rows]


if __name__ == "__main__":
    main()
