"""Each cloud extra in an environment of its own: the wheel names a missing one, and with it a store can be used."""

import ast
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.support.pages import PROJECT
from tests.support.reader import SECONDS, Wheel, clean_variables, make_installation
from tests.support.tool_cache import INSTALL_SECONDS

pytestmark = pytest.mark.timeout(SECONDS + INSTALL_SECONDS)
SOURCE = PROJECT / "src" / "nunatak"
STORES = {"s3": "ministack_store", "azure": "azure_store", "gcs": "gcs_store"}
ROUND_TRIP = """
import asyncio, sys
from nunatak.objectstore.cloud_storage import CloudStorage
from nunatak.objectstore.location import parse_location
from nunatak.objectstore.profile import decode_profile, decode_secret

async def main(profile, secret, home):
    storage = CloudStorage(decode_profile(profile), decode_secret(secret), parse_location(home))
    place = parse_location(home + "/a")
    await storage.write_new(place, b"written with the extra alone")
    print((await storage.read(place, str(place))).decode())
    await storage.close()

asyncio.run(main(*sys.argv[1:]))
"""
IMPORT = "import sys; from nunatak.objectstore.extras import load_library; load_library(*sys.argv[1:])"
REFUSAL = """
import sys
from nunatak.errors import InternalError
from nunatak.objectstore.extras import load_library
try:
    load_library(*sys.argv[1:])
except InternalError as error:
    print(error.message, error.hint, sep="; ")
"""


def loaded_libraries() -> set[tuple[str, str]]:
    """Returns every module that the server loads on first use, with the extra that brings it."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load_library":
                name, extra = node.args
                if isinstance(name, ast.Constant):
                    extras = [extra.value] if isinstance(extra, ast.Constant) else list(STORES)
                    found |= {(str(name.value), str(each)) for each in extras}
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return Wheel.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Wheel) -> Path:
    """An environment with the wheel and no extra."""
    return make_installation(tmp_path_factory.mktemp("bare") / "venv", wheel)


def run(program: Path, *words: str) -> str:
    ended = subprocess.run(
        [program, *words], env=clean_variables(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


def test_without_an_extra_the_message_names_it(bare: Path) -> None:
    libraries = loaded_libraries()
    assert {extra for _, extra in libraries} == set(STORES)
    for name, extra in sorted(libraries):
        package = name.partition(".")[0]
        said = run(bare / "python", "-c", REFUSAL, name, extra)

        assert said == f"The library {package} is not installed; pip install 'nunatak[{extra}]'\n"


@pytest.mark.parametrize("extra", STORES)
def test_an_extra_alone_reads_and_writes_its_store(
    extra: str, request: pytest.FixtureRequest, tmp_path: Path, wheel: Wheel, bare: Path
) -> None:
    store = request.getfixturevalue(STORES[extra])
    programs = make_installation(tmp_path / "venv", wheel, base=bare)
    ended = subprocess.run(
        [programs / "pip", "install", f"nunatak[{extra}]"],
        env={**clean_variables(), "PIP_CONSTRAINT": str(wheel.pins)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for name in sorted(name for name, of in loaded_libraries() if of == extra):
        run(programs / "python", "-c", IMPORT, name, extra)

    encoded = [msgspec.json.encode(each).decode() for each in (store.profile(), store.secret())]
    said = run(programs / "python", "-c", ROUND_TRIP, *encoded, store.location(store.new_bucket(), "home"))

    assert said == "written with the extra alone\n"
