"""The switch `linux_syscalls`: in a sandbox that refuses these calls files are written all the same."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nunatak.objectstore.linux import syscalls
from nunatak.settings import load
from tests.api.wire import a_commit, ok, set_properties
from tests.support.catalogs.local import LocalCatalog
from tests.support.seccomp import FILES
from tests.support.syncs import forbid_linux_calls

ROOT = Path(__file__).parents[2]
SECONDS = 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these calls are Linux' own")


def in_sandbox(how: str, switch: str, folder: Path) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.seccomp", how, switch, str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    if "seccomp is not to be had here" in ended.stderr:
        pytest.skip("NOT RUN: this system lets nobody install a seccomp filter")
    return ended


@pytest.mark.parametrize("switch", ["true", "false"])
def test_where_a_sandbox_refuses_the_calls_files_are_written_without_them(tmp_path: Path, switch: str) -> None:
    ended = in_sandbox("errno", switch, tmp_path)

    assert (ended.stdout, ended.stderr) == (f"{FILES + 1}\n", "")


def test_switched_off_not_one_of_the_calls_is_made(tmp_path: Path) -> None:
    """This sandbox ends the process at the first of them."""
    ended = in_sandbox("kill", "false", tmp_path)

    assert (ended.stdout, ended.stderr) == (f"{FILES + 1}\n", "")


def test_switched_on_they_are_made(tmp_path: Path) -> None:
    """The canary: else the sandbox would prove nothing."""
    assert in_sandbox("kill", "true", tmp_path).returncode == -signal.SIGSYS


def test_they_are_switched_on_unless_the_setting_says_otherwise() -> None:
    assert load({}, {"NUNATAK_CONFIG": os.devnull}).linux_syscalls
    assert not load({}, {"NUNATAK_CONFIG": os.devnull, "NUNATAK_LINUX_SYSCALLS": "false"}).linux_syscalls


def test_a_whole_catalog_runs_with_the_calls_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_linux_calls(monkeypatch)
    catalog = LocalCatalog(tmp_path / "data", {"NUNATAK_LINUX_SYSCALLS": "false"})
    try:
        catalog.namespace("ns")
        catalog.table("ns", "t")
        committed = ok(catalog.commit("ns", "t", a_commit(set_properties(a="b"))))
        catalog.restart()
        assert catalog.load("ns", "t") == committed
    finally:
        catalog.close()


@pytest.mark.skipif(not syscalls.is_available(), reason="this kernel has no openat2")
def test_a_whole_catalog_uses_the_calls_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary of the test above."""
    catalog = LocalCatalog(tmp_path / "data")
    try:
        catalog.namespace("ns")
        created = catalog.table("ns", "t")
        forbid_linux_calls(monkeypatch)
        assert catalog.commit("ns", "t", a_commit(set_properties(a="b"))).status >= 500
        assert catalog.load("ns", "t") == created
    finally:
        monkeypatch.undo()
        catalog.close()
