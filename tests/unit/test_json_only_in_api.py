"""Only api/ makes JSON for clients: every other place that makes JSON is named here, with what it makes it for."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "nunatak"
MAY_ENCODE = ("api", "cli", "client.py")

COLUMN = "the content of a database column"
PARAMETER = "a list, as the parameter of a query"
JOB = "what a job in the database is told"
FILE = "a file on the server's machine"
METADATA = "the content of a metadata file, and what is compared with it"
# CPU time by `python -m tests.bench.encoding`. A list of 1,000 tables: 0.27 ms as SQLite joins it, 0.04 ms kept since
# the last time, 0.46 ms if the store returned names and api/ encoded them. A load of metadata with 100 snapshots:
# 0.002 ms around the bytes of its file, nothing from the cache, 0.016 ms decoded and encoded.
HOT_LIST = "identifiers in the answer to a list, joined where the names are: encoding takes 1.7 to 10 times as long"
LOADED = "the answer to a load around the bytes of the metadata file: encoding it takes 9 times as long"

ALLOWED = {
    "access/administration.py create_credential": COLUMN,
    "access/audit_rows.py _event_detail": COLUMN,
    "access/audit_rows.py audit_row": COLUMN,
    "access/audit_rows.py origin_text": COLUMN,
    "access/bootstrap.py": FILE,
    "access/cedar.py": "what Cedar is asked",
    "access/grants.py json_of": PARAMETER,
    "access/opa.py": "what OPA is asked",
    "address_file.py": FILE,
    "catalog/cache.py __init__": LOADED,
    "catalog/commits.py": JOB,
    "catalog/foreign_paths.py": PARAMETER,
    "catalog/job_queue.py": COLUMN,
    "catalog/warehouse_record.py encode_json": COLUMN,
    "catalog/warehouses.py seal_secret": COLUMN,
    "catalog/tables.py _removal_job": JOB,
    "catalog/temporary_access.py": COLUMN,
    "catalog/unpublished_files.py job": JOB,
    "catalog/tables.py list_entries": HOT_LIST,
    "catalog/tables.py stage_table": LOADED,
    "database/changes.py json_list": PARAMETER,
    "database/backup_manifest.py": FILE,
    "database/mariadb.py list_pointers": HOT_LIST,
    "database/bindings.py purge_payload": JOB,
    "events/audit_buffer.py": PARAMETER,
    "events/change_events.py": COLUMN,
    "events/reports.py": COLUMN,
    "events/seals.py": "a seal, which is a line of the exported audit trail",
    "events/spool.py": FILE,
    "events/audit_trail.py line_of": "a line of the exported audit trail, whose bytes are sealed",
    "iceberg": METADATA,
    "maintenance/policies.py encode_policy": COLUMN,
    "maintenance/policy_store.py": PARAMETER,
    "objectstore/vending/gcs_token.py": "the access boundary that the token exchange is sent",
    "objectstore/vending/s3_policy.py policy_text": "the policy that STS is sent",
    "maintenance/worker_jobs.py": COLUMN,
    "setting_values.py parse_tables": FILE,
    "settings.py": FILE,
}


def makes_json(node: ast.AST) -> bool:
    """An encoder, or text that begins as a JSON object does."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node) in ("msgspec.json.encode", "msgspec.json.Encoder", "json.dumps", "json.dump")
    if isinstance(node, ast.ImportFrom):
        return node.module in ("json", "msgspec.json")
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes | str):
        text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        return text.startswith('{"')
    return False


def functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node, with the name of the function that it is in."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else name
        yield inner, node
        yield from functions(node, inner)


def places() -> set[str]:
    found = set()
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE).as_posix()
        if not path.startswith(tuple(MAY_ENCODE)):
            found |= {f"{path} {name}" for name, node in functions(ast.parse(file.read_text())) if makes_json(node)}
    return found


def test_json_is_made_for_clients_in_api_alone() -> None:
    unnamed = {place for place in places() if not place.startswith(tuple(ALLOWED))}

    assert not unnamed, "return a value and let api/ encode it, or say here what the JSON is for"


def test_every_exception_is_still_needed() -> None:
    found = places()

    assert not [name for name in ALLOWED if not any(place.startswith(name) for place in found)]


def test_what_makes_json_is_recognised() -> None:
    source = """
import msgspec
from json import dumps
def listed(names): return b'{"names":' + msgspec.json.encode(names) + b"}"
def text(value): return f'{{"value":{value}}}'
def other(): return "{name} is no JSON", msgspec.json.decode(b"{}")
"""
    found = {name for name, node in functions(ast.parse(source)) if makes_json(node)}

    assert found == {"", "listed", "text"}
