"""`nunatak warehouse`: warehouses on a real S3 store, with their self-test, from the command line."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.catalogs.process import RunningServer, running_server
from tests.support.object_stores import S3Emulator
from tests.unit.cli.conftest import Outcome, Run, run_command


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("warehouses") / "nunatak-data"
    with running_server(data, environment={"NUNATAK_PRIVATE_ENDPOINTS": "true"}) as server:
        yield server


@pytest.fixture
def run(server: RunningServer) -> Run:
    def run(*arguments: str, code: int = 0) -> Outcome:
        outcome = run_command(*arguments, NUNATAK_URI=server.uri)
        assert outcome.code == code, outcome
        return outcome

    return run


def secret_file(folder: Path, **fields: str) -> str:
    file = folder / "secret.json"
    file.write_text(json.dumps({name.replace("_", "-"): value for name, value in fields.items()}))
    return str(file)


def keys_of(store: S3Emulator, folder: Path) -> str:
    return secret_file(folder, access_key_id=store.access_key_id, secret_access_key=store.secret_access_key)


def options(store: S3Emulator, folder: Path, *, bucket: str | None = None) -> list[str]:
    given = ["--location", store.location(bucket or store.new_bucket(), "lake"), "--endpoint", store.endpoint]
    given += ["--role-arn", store.role_arn, "--secret-file", keys_of(store, folder)]
    return given + (["--external-id", store.external_id] if store.external_id else [])


def test_a_warehouse_on_s3_is_created_shown_changed_checked_and_dropped(
    run: Run, ministack_store: S3Emulator, tmp_path: Path
) -> None:
    created = run("warehouse", "create", "lake", *options(ministack_store, tmp_path), "--must-lie-in", "us-east-1")
    shown = run("warehouse", "show", "lake")
    checked = run("warehouse", "check", "lake")
    changed = run("warehouse", "change", "lake", "--read-only", "--format-version", "2", "--session-seconds", "1800")
    refused = run("namespace", "create", "a", "--warehouse", "lake", code=1)
    late = run("warehouse", "change", "lake", "--writable", "--if-version", "1", code=1)
    listed = run("warehouse", "list")
    after = run("warehouse", "show", "lake", "-o", "json").json
    run("warehouse", "change", "lake", "--writable")
    rotated = run("warehouse", "rotate-secret", "lake", "--secret-file", keys_of(ministack_store, tmp_path))
    run("warehouse", "drop", "lake")

    assert "created warehouse lake at s3://" in created.out
    for outcome in (created, checked):
        assert "scope: sibling folder" in outcome.out
        assert "failed" not in outcome.out
    assert "it is at version 2" in changed.out
    assert "lake is read-only" in refused.err
    assert "version 2, not 1" in late.err
    assert "read-only" in listed.out
    assert (after["read-only"], after["format-versions"], after["region"]) == (True, [2], "us-east-1")
    assert (after["profile"]["session-seconds"], after["profile"]["role-arn"]) == (1800, ministack_store.role_arn)
    assert "replaced the secret" in rotated.out
    assert "stored" in shown.out
    everything = "".join(each.out + each.err for each in (created, shown, checked, changed, rotated, listed))
    assert ministack_store.secret_access_key not in everything


def test_a_store_that_does_not_enforce_scope_needs_a_word(run: Run, moto_store: S3Emulator, tmp_path: Path) -> None:
    bucket = moto_store.new_bucket()
    given = options(moto_store, tmp_path, bucket=bucket)

    refused = run("warehouse", "create", "open", *given, code=1).err
    accepted = run("warehouse", "create", "open", *given, "--unscoped").out
    shown = run("warehouse", "show", "open", "-o", "json").json

    assert "does not enforce the scope of vended credentials" in refused
    assert "table0/new.txt" in refused
    assert "--unscoped" in refused
    assert "vends no credentials" in accepted
    assert shown["profile"]["delegation"] == ["remote-signing"]


def test_a_failed_check_ends_with_an_error(run: Run, ministack_store: S3Emulator, tmp_path: Path) -> None:
    bucket = ministack_store.new_bucket()
    run("warehouse", "create", "gone", *options(ministack_store, tmp_path, bucket=bucket))
    with contextlib.closing(ministack_store.client()) as client:
        client.delete_bucket(Bucket=bucket)

    failed = run("warehouse", "check", "gone", code=1)

    assert f"The bucket {bucket} does not exist" in failed.out
    assert "failed the self-test" in failed.err


@pytest.mark.parametrize(
    ("content", "said"),
    [("no JSON", "is not JSON"), ("[1]", "not a JSON object"), ('{"unknown": "field"}', "unknown")],
)
def test_a_secret_that_cannot_be_read_is_refused_and_not_shown(
    run: Run, tmp_path: Path, content: str, said: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(content)

    refused = run("warehouse", "create", "x", "--location", "s3://bucket/x", "--secret-file", str(file), code=1)

    assert said in refused.err


def test_a_key_file_of_google_is_taken_as_it_is(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"type": "service_account", "token_uri": "https://169.254.169.254/token"}))

    refused = run("warehouse", "create", "x", "--location", "gs://bucket/x", "--secret-file", str(file), code=1)

    assert "no object store can be" in refused.err  # its address was read


def test_an_option_of_a_store_needs_the_location_of_one(run: Run) -> None:
    assert "needs a location such as s3://" in run("warehouse", "create", "x", "--role-arn", "arn:x", code=1).err
