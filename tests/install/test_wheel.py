"""The wheel in an environment with nothing else: the server needs no extra, and other commands say what they need."""

import re
import subprocess
from pathlib import Path

import pytest

from nunatak.cli.plugins import SPARK_COMMANDS
from tests.support.pages import DEFAULT_URI
from tests.support.reader import SECONDS, Reader, Wheel, make_installation, reading


@pytest.mark.timeout(SECONDS)
def test_the_wheel_alone_serves_and_the_spark_commands_say_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()
    (tmp_path / "work" / "spool").mkdir(parents=True)
    wheel = Wheel.build(tmp_path / "wheel")
    programs = make_installation(tmp_path / "venv", wheel)
    with reading(tmp_path / "work", programs, pins=wheel.pins) as reader:
        helped = reader.run("nunatak --help")
        reader.serve("nunatak serve\n")
        reader.run("nunatak namespace create demo\nnunatak table create demo.events --column id:long")
        refused = {
            command: failing(reader, programs, command)
            for command in (
                "nunatak spark doctor",
                "nunatak report",
                "nunatak report ingest --spool spool",
                "nunatak migrate inventory --jdbc sqlite:///x.db --as x",
            )
        }
        # What needs no Spark works: settings for an engine elsewhere, and leaving a job to a worker elsewhere.
        listed, settings = reader.run("nunatak table list demo"), reader.run("nunatak spark conf")
        reader.run("nunatak maintain --dry-run")

    assert all(re.search(rf"^  {name} ", helped, re.MULTILINE) for name in SPARK_COMMANDS), helped
    assert "events" in listed
    assert reader.replaced[DEFAULT_URI] in settings
    for command, (code, said) in refused.items():
        assert (code, "Traceback" in said) == (1, False), (command, said)
        assert "pip install 'nunatak[spark]'" in said, (command, said)


def failing(reader: Reader, programs: Path, command: str) -> tuple[int, str]:
    variables = {**reader.variables, "PATH": f"{programs}:{reader.variables['PATH']}"}
    variables["NUNATAK_URI"] = reader.replaced[DEFAULT_URI]
    ended = subprocess.run(
        command.split(), cwd=reader.folder, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr
