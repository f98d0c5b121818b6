"""Where a jar is looked for, in which order, and that no byte is trusted that was not pinned."""

import base64
import hashlib
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nunatak_spark.compatibility import Jar
from nunatak_spark.errors import ConfigurationConflict, JarChecksumMismatch, JarNotFound
from nunatak_spark.jars import JarLocations, find_jar, jar_locations, load_jar

CONTENT = b"the classes"
JAR = Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", hashlib.sha256(CONTENT).hexdigest())


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def places(tmp_path: Path) -> JarLocations:
    return JarLocations(
        cache=tmp_path / "cache", spark_jars=tmp_path / "spark" / "jars", maven_repository=tmp_path / "m2"
    )


def found_path(places: JarLocations) -> Path | None:
    found = find_jar(JAR, places)
    return None if found is None else found.path


# Looking


def test_places_are_searched_from_the_named_one_to_the_cache(places: JarLocations, tmp_path: Path) -> None:
    assert places.spark_jars is not None
    assert places.maven_repository is not None
    assert find_jar(JAR, places) is None
    cached = put(places.cache / JAR.file_name)
    assert found_path(places) == cached
    in_maven = put(places.maven_repository / JAR.repository_path)
    assert found_path(places) == in_maven
    with_spark = put(places.spark_jars / JAR.file_name)
    assert found_path(places) == with_spark
    named = put(tmp_path / "mine" / JAR.file_name)
    assert found_path(replace(places, named=(named,))) == named
    assert found_path(replace(places, named=(named.parent,))) == named


def test_a_jar_that_lies_with_spark_is_on_the_class_path_already(places: JarLocations) -> None:
    assert places.spark_jars is not None
    put(places.spark_jars / JAR.file_name)

    found = find_jar(JAR, places)

    assert found is not None
    assert found.with_spark


@pytest.mark.parametrize(
    "other", ["iceberg-spark-runtime-4.1_2.13-1.11.0.jar", "iceberg-spark-runtime-3.5_2.12-1.12.0.jar"]
)
def test_a_second_iceberg_with_spark_is_refused_even_if_a_jar_is_named(
    places: JarLocations, tmp_path: Path, other: str
) -> None:
    assert places.spark_jars is not None
    put(places.spark_jars / other)
    named = replace(places, named=(put(tmp_path / "mine" / JAR.file_name),))

    for where in (places, named):
        with pytest.raises(ConfigurationConflict, match=other):
            find_jar(JAR, where)


def test_a_named_jar_with_other_bytes_is_refused(places: JarLocations, tmp_path: Path) -> None:
    wrong = put(tmp_path / JAR.file_name, b"something else")

    with pytest.raises(JarChecksumMismatch, match=r"not the .* that was pinned"):
        find_jar(JAR, replace(places, named=(wrong,)))


def test_a_named_path_that_is_not_there_is_refused(places: JarLocations, tmp_path: Path) -> None:
    with pytest.raises(JarNotFound, match="There is no"):
        find_jar(JAR, replace(places, named=(tmp_path / "nowhere.jar",)))


def test_a_named_jar_of_another_kind_is_not_taken_for_it(places: JarLocations, tmp_path: Path) -> None:
    driver = put(tmp_path / "sqlite-jdbc-3.53.4.0.jar")

    assert find_jar(JAR, replace(places, named=(driver,))) is None


def test_a_broken_copy_is_passed_over_for_a_whole_one(places: JarLocations) -> None:
    assert places.maven_repository is not None
    put(places.maven_repository / JAR.repository_path, b"half of it")
    whole = put(places.cache / JAR.file_name)

    assert found_path(places) == whole


# Getting


def test_without_any_way_to_get_it_the_refusal_says_all_of_them(places: JarLocations) -> None:
    with pytest.raises(JarNotFound) as refusal:
        load_jar(JAR, places)

    assert "Install Maven" in refusal.value.fix
    assert "NUNATAK_MAVEN_URL" in refusal.value.fix
    assert JAR.sha256 in refusal.value.fix
    assert str(places.cache) in refusal.value.fix


@pytest.fixture
def repository() -> Iterator["Repository"]:
    server = Repository()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Repository(ThreadingHTTPServer):
    """A Maven repository with one file; it notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RepositoryHandler)
        self.content = CONTENT
        self.asked: list[tuple[str, str | None]] = []

    def url(self, user: str = "") -> str:
        return f"http://{user}127.0.0.1:{self.server_port}/maven"


class RepositoryHandler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        known = self.path == f"/maven/{JAR.repository_path}"
        self.send_response(200 if known else 404)
        self.end_headers()
        if known:
            self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        pass


def test_a_jar_is_downloaded_once_into_the_cache(places: JarLocations, repository: Repository) -> None:
    named = replace(places, maven_url=repository.url())

    first, again = load_jar(JAR, named), load_jar(JAR, named)

    assert first.path == again.path == places.cache / JAR.file_name
    assert first.path.read_bytes() == CONTENT
    assert len(repository.asked) == 1


def test_other_bytes_than_the_pinned_ones_are_not_kept(places: JarLocations, repository: Repository) -> None:
    repository.content = b"something else"

    with pytest.raises(JarChecksumMismatch, match=r"not the .* that was pinned"):
        load_jar(JAR, replace(places, maven_url=repository.url()))

    assert list(places.cache.iterdir()) == []


def test_a_broken_copy_in_the_cache_is_replaced(places: JarLocations, repository: Repository) -> None:
    put(places.cache / JAR.file_name, b"half of it")

    assert load_jar(JAR, replace(places, maven_url=repository.url())).path.read_bytes() == CONTENT


def test_a_repository_without_the_jar_is_named_in_the_refusal(places: JarLocations, repository: Repository) -> None:
    with pytest.raises(JarNotFound, match="404") as refusal:
        load_jar(replace(JAR, version="9.9"), replace(places, maven_url=repository.url()))

    assert repository.url() in refusal.value.problem


def test_a_password_in_the_address_is_sent_and_never_printed(places: JarLocations, repository: Repository) -> None:
    named = replace(places, maven_url=repository.url("robot:s%40cret@"))

    load_jar(JAR, named)
    with pytest.raises(JarNotFound) as refusal:
        load_jar(replace(JAR, version="9.9"), named)

    assert repository.asked[0][1] == f"Basic {base64.b64encode(b'robot:s@cret').decode()}"
    assert "cret" not in str(refusal.value)


@pytest.mark.parametrize("address", ["file:///etc", "ftp://host/maven", "maven"])
def test_an_address_that_is_not_of_the_web_is_refused(places: JarLocations, address: str) -> None:
    with pytest.raises(JarNotFound, match="is not an address"):
        load_jar(JAR, replace(places, maven_url=address))


def a_maven(folder: Path, script: str) -> str:
    """A program in the place of mvn; what the real one does is seen where the suite fetches its jars."""
    program = put(folder / "mvn", f"#!/bin/sh\n{script}\n".encode())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_maven_is_asked_for_the_coordinate_and_its_file_is_checked(places: JarLocations, tmp_path: Path) -> None:
    script = f"""
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) folder="${{argument#*=}}";; esac; done
echo "$@" > {tmp_path}/asked
printf '%s' '{CONTENT.decode()}' > "$folder/{JAR.file_name}"
"""
    found = load_jar(JAR, replace(places, maven=a_maven(tmp_path / "bin", script)))

    assert found.path == places.cache / JAR.file_name
    assert f"dependency:copy -Dartifact={JAR.coordinate} " in (tmp_path / "asked").read_text()


def test_what_maven_says_when_it_fails_is_passed_on(places: JarLocations, tmp_path: Path) -> None:
    maven = a_maven(tmp_path / "bin", "echo 'Could not find artifact'; exit 1")

    with pytest.raises(JarNotFound, match="Could not find artifact"):
        load_jar(JAR, replace(places, maven=maven))


def test_the_environment_says_where_the_places_are(tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path),
        "NUNATAK_SPARK_JARS": "/a/one.jar,/b/two.jar",
        "NUNATAK_MAVEN_URL": "https://repository.example/maven",
        "PATH": "",
    }
    places = jar_locations(environment, named=["/c/three.jar"], spark_home=Path("/spark"))

    assert places.named == (Path("/c/three.jar"), Path("/a/one.jar"), Path("/b/two.jar"))
    assert places.cache == tmp_path / ".cache" / "nunatak" / "jars"
    assert places.spark_jars == Path("/spark/jars")
    assert places.maven_repository == tmp_path / ".m2" / "repository"
    assert places.maven is None
    assert jar_locations({**environment, "XDG_CACHE_HOME": "/x"}).cache == Path("/x/nunatak/jars")
