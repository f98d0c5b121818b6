"""Class paths for the Java programs that tests run: resolved by Maven once, compiled once, then kept in a cache."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESOLVE_SECONDS = 900  # the first time Maven fetches about 85 MB
RESOLVE_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:build-classpath"


class JavaFailed(Exception):
    """Maven, the compiler or the program itself did not do what it was started for; the message ends with its log."""


def missing_tools() -> str | None:
    """What keeps Java tests from running here, as a sentence, or None if nothing does."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not on the PATH" if missing else None


def class_path(project: str) -> str:
    """The class path of a folder beside this file, our classes first; needs no Maven and no network the second time."""
    folder = HERE / project
    sources = sorted(folder.glob("*.java"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in [folder / "pom.xml", *sources])).hexdigest()[:16]
    ready = cache_folder() / "java" / f"{project}-{key}"
    with one_at_a_time(ready):
        if not _is_complete(ready):
            _build(folder / "pom.xml", sources, ready)
    return os.pathsep.join([str(ready / "classes"), (ready / "classpath").read_text()])


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nunatak"


@contextlib.contextmanager
def one_at_a_time(kept: Path) -> Iterator[None]:
    """What is made once and kept there; whoever comes second waits, and finds it."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_name(f"{kept.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_complete(ready: Path) -> bool:
    """Somebody may have emptied Maven's repository since."""
    listed = ready / "classpath"
    return listed.exists() and all(Path(jar).exists() for jar in listed.read_text().split(os.pathsep))


def _build(pom: Path, sources: list[Path], ready: Path) -> None:
    draft = ready.with_name(f"{ready.name}.{os.getpid()}")
    (draft / "classes").mkdir(parents=True)
    try:
        listed = draft / "classpath"
        # Maven 3 reads its own files only; -N and a build folder here keep the source tree clean.
        _run("mvn", "-q", "-B", "-N", "-f", str(pom), RESOLVE_GOAL, f"-Dmdep.outputFile={listed}")
        listed.write_text(listed.read_text().strip())
        compiler = ["javac", "--release", "17", "-proc:none", "-Xlint:-options", "-nowarn"]
        _run(*compiler, "-cp", listed.read_text(), "-d", str(draft / "classes"), *map(str, sources))
        shutil.rmtree(ready, ignore_errors=True)
        draft.rename(ready)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RESOLVE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise JavaFailed(f"{command[0]} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')[-4000:]}")
