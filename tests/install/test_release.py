"""`make release`: what it writes, commits and tags, and what it refuses. It runs on a copy of the project's folder."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 300  # a few seconds on a quiet machine
MARK = "<!-- The next release goes below this line. -->\n"
FRAGMENTS = {
    "7.fixed.md": "A lost reply no longer fails a retried commit.\n",
    "7-short-name.added.md": "`nunatak fly` flies,\nalso over *two* lines.\n",
    "8.removed.md": "The setting `old` is gone.\n",
}


class Project:
    """A copy of this project in a repository of its own, with the changelog lines of these tests alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in self._git_in(ROOT, "ls-files", "-co", "--exclude-standard", "-z").split("\0"):
            if name and (ROOT / name).is_file() and not is_fragment(name) and not name.startswith("tests/"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        for name, text in FRAGMENTS.items():
            (folder / "changelog.d" / name).write_text(text)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Begin")

    def git(self, *words: str) -> str:
        return self._git_in(self.folder, *words)

    @staticmethod
    def _git_in(folder: Path, *words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=folder, env=environment(), capture_output=True, text=True, check=True
        ).stdout

    def release(self, version: str) -> "subprocess.CompletedProcess[str]":
        """With the tools of the environment that runs the tests, which is not installed anew."""
        command = [
            "make",
            "release",
            f"VERSION={version}",
            f"VENV={sys.prefix}",
            "-o",
            f"{sys.prefix}/.installed-tests",
        ]
        return subprocess.run(
            command, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def state(self) -> tuple[str, str, str]:
        return self.git("rev-parse", "HEAD"), self.git("status", "--porcelain"), self.git("tag")


def is_fragment(name: str) -> bool:
    return name.startswith("changelog.d/") and name != "changelog.d/template.md"


def environment() -> dict[str, str]:
    who = {"GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "T", "GIT_COMMITTER_EMAIL": "t@t"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "MAKE", "VERSION"))}
    return {**kept, **who}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    if not (ROOT / ".git").exists():
        pytest.skip("NOT RUN: this folder is no git repository")
    return Project(tmp_path / "project")


def test_a_release_is_written_committed_tagged_and_built(project: Project) -> None:
    head, _, earlier = (project.folder / "CHANGELOG.md").read_text().partition(MARK)

    ended = project.release("9.8.7")

    assert ended.returncode == 0, ended.stderr
    assert project.state()[1:] == ("", "v9.8.7\n")
    assert project.git("show", "--no-patch", "--format=%s", "v9.8.7^{commit}") == "Release 9.8.7\n"
    assert '__version__ = "9.8.7"' in project.git("show", "v9.8.7:src/nunatak/__init__.py")
    changelog = project.git("show", "v9.8.7:CHANGELOG.md")
    day = project.git("show", "--no-patch", "--format=%cs", "HEAD").strip()
    assert (
        changelog
        == f"""{head}{MARK}
## 9.8.7 ({day})

### Added

- `nunatak fly` flies,
  also over *two* lines.

### Fixed

- A lost reply no longer fails a retried commit.

### Removed

- The setting `old` is gone.
{earlier}"""
    )
    assert [name for name in project.git("ls-files").splitlines() if is_fragment(name)] == []
    with zipfile.ZipFile(project.folder / "dist" / "nunatak-9.8.7-py3-none-any.whl") as wheel:
        metadata = wheel.read("nunatak-9.8.7.dist-info/METADATA").decode()
    assert "\nVersion: 9.8.7\n" in metadata
    with tarfile.open(project.folder / "dist" / "nunatak-9.8.7.tar.gz") as sdist:
        assert "nunatak-9.8.7/CHANGELOG.md" in sdist.getnames()


def test_the_next_release_stands_above_the_last(project: Project) -> None:
    assert project.release("1.0.0").returncode == 0
    (project.folder / "changelog.d" / "9.changed.md").write_text("More.\n")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "More")

    assert project.release("1.1.0").returncode == 0

    titles = [
        line.split()[1] for line in (project.folder / "CHANGELOG.md").read_text().splitlines() if line[:3] == "## "
    ]
    assert titles[:2] == ["1.1.0", "1.0.0"]


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3; touch x", "1.2.3-rc1"])
def test_what_is_no_version_is_refused(project: Project, version: str) -> None:
    before = project.state()

    ended = project.release(version)

    assert ended.returncode != 0
    assert "make release VERSION=1.2.3" in ended.stderr
    assert project.state() == before


def test_a_tree_with_changes_is_refused(project: Project) -> None:
    (project.folder / "README.md").write_text("half written")
    before = project.state()

    ended = project.release("1.0.0")

    assert ended.returncode != 0
    assert "The working tree has changes" in ended.stderr
    assert project.state() == before
    assert (project.folder / "README.md").read_text() == "half written"


def test_a_version_is_released_once(project: Project) -> None:
    assert project.release("1.0.0").returncode == 0
    before = project.state()

    ended = project.release("1.0.0")

    assert ended.returncode != 0
    assert "v1.0.0 is tagged already" in ended.stderr
    assert project.state() == before


def test_a_release_that_fails_leaves_everything_as_it_was(project: Project) -> None:
    (project.folder / "changelog.d" / "template.md").write_text("{% broken")
    project.git("commit", "--quiet", "--all", "--message", "Break it")
    before = project.state()

    assert project.release("1.0.0").returncode != 0

    assert project.state() == before
