"""The policies of vended credentials: golden files of both levels for each store, and refusals of ambiguous paths.

`python -m tests.unit.vending.test_policies` writes the golden files anew; read the difference before committing it.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nunatak.errors import Forbidden
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import AdlsProfile, S3Profile
from nunatak.objectstore.storage import AccessLevel, CredentialScope
from nunatak.objectstore.vending.adls_sas import directory_sas
from nunatak.objectstore.vending.gcs_boundary import access_boundary, cel_string
from nunatak.objectstore.vending.granted_paths import UngrantablePath
from nunatak.objectstore.vending.s3_policy import MAX_POLICY_CHARACTERS, policy_text, session_policy
from tests.unit.vending.scopes import ADLS, AWS, COMPATIBLE, FOLDER, GCS, LEVELS, a_scope

GOLDEN = Path(__file__).with_name("golden")
NOW_MS = 1_795_000_000_000
READ_WRITE = AccessLevel.READ_WRITE


def s3(profile: S3Profile, *places: str) -> Callable[[AccessLevel], object]:
    return lambda level: session_policy(profile, a_scope(*places, level=level))


def adls(level: AccessLevel) -> object:
    place = f"abfss://lake@company.dfs.core.windows.net/{FOLDER}"
    return msgspec.to_builtins(directory_sas(ADLS, a_scope(place, level=level), NOW_MS))


CASES: dict[str, Callable[[AccessLevel], object]] = {
    "s3": s3(AWS, f"s3://lake/{FOLDER}"),
    "s3-compatible": s3(COMPATIBLE, f"s3://lake/{FOLDER}"),
    "s3-escaped": s3(AWS, "s3://lake/wh/odd*name$x"),
    "s3-two-places": s3(AWS, f"s3://lake/{FOLDER}", "s3://lake/data/orders", "s3://other/data/orders"),
    "s3-china": s3(msgspec.structs.replace(AWS, region="cn-north-1"), f"s3://lake/{FOLDER}"),
    "gcs": lambda level: access_boundary(GCS, a_scope(f"gs://lake/{FOLDER}", level=level)),
    "gcs-two-places": lambda level: access_boundary(
        GCS, a_scope(f"gs://lake/{FOLDER}", "gs://lake/data/orders", level=level)
    ),
    "adls": adls,
}


def made(name: str, level: AccessLevel) -> str:
    return json.dumps(CASES[name](level), indent=2) + "\n"


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.value)
@pytest.mark.parametrize("name", CASES)
def test_the_policy_is_the_one_that_was_reviewed(name: str, level: AccessLevel) -> None:
    assert made(name, level) == (GOLDEN / f"{name}-{level.value}.json").read_text("utf-8")


@pytest.mark.parametrize("name", CASES)
def test_a_reader_gets_no_permission_to_write(name: str) -> None:
    reading, writing = made(name, AccessLevel.READ), made(name, READ_WRITE)

    assert reading != writing
    for word in ("PutObject", "DeleteObject", "objectUser", "AbortMultipartUpload", "racwdl"):
        assert word not in reading


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.value)
def test_every_prefix_of_an_s3_policy_ends_at_a_slash(level: AccessLevel) -> None:
    first, *lists = session_policy(COMPATIBLE, a_scope("s3://lake/wh/t1", level=level))["Statement"]

    assert first["Resource"] == "arn:aws:s3:::lake/wh/t1/*"
    assert [each["Condition"]["StringLike"]["s3:prefix"] for each in lists] == [["wh/t1/", "wh/t1/*"]]


# Ambiguous paths


def in_segment(text: str) -> Location:
    return Location("s3", "lake", ("wh", text))


WITH_A_MEANING = ["*", "?", "$", "{", "}", "'", '"', "\\", "%", "[", "]", "^", "|", "<", "`", "#"]
NEVER = [
    "", ".", "..", "a/b", "a.", "a ", " a", "a\x00", "a\n", "a\x7f", "a\u200b", "a\u202eb", "a\ufeff",
    "a\u2028",
    "a\ud800", "a\ue000", "a\uff0fb", "a\uff0ab", "\ufb01le", "e\u0301", "\u212a", "a\u00a0b", "\uff0e\uff0e",
]  # fmt: skip


@pytest.mark.parametrize("text", NEVER, ids=ascii)
@pytest.mark.parametrize("profile", [AWS, COMPATIBLE], ids=["aws", "compatible"])
def test_no_s3_policy_is_made_for_an_ambiguous_path(profile: S3Profile, text: str) -> None:
    with pytest.raises(UngrantablePath):
        session_policy(profile, a_scope(in_segment(text)))


@pytest.mark.parametrize("mark", [*WITH_A_MEANING, "é", "表"])
def test_a_store_that_is_not_amazons_gets_no_character_with_a_meaning(mark: str) -> None:
    for place in (in_segment(f"a{mark}b"), in_segment(mark), Location("s3", "lake", (f"{mark}a", "t"))):
        with pytest.raises(UngrantablePath):
            session_policy(COMPATIBLE, a_scope(place, level=READ_WRITE))
    for place in (Location("gs", "lake", ("wh", f"a{mark}b")), Location("gs", "lake", (mark, "t"))):
        with pytest.raises(UngrantablePath):
            access_boundary(GCS, a_scope(place))
    place = Location("abfss", "lake@company.dfs.core.windows.net", ("wh", f"a{mark}b"))
    with pytest.raises(UngrantablePath):
        directory_sas(ADLS, a_scope(place), NOW_MS)


@pytest.mark.parametrize(
    ("segment", "written"),
    [
        ("*", "${*}"),
        ("a?b", "a${?}b"),
        ("${aws:username}", "${$}{aws:username}"),
        ("${*}", "${$}{${*}}"),
        ('a"b\\c', 'a"b\\c'),
        ("a%2Fb", "a%2Fb"),
        ("表", "表"),
    ],
)
def test_amazon_gets_the_character_without_its_meaning(segment: str, written: str) -> None:
    policy = session_policy(AWS, a_scope(in_segment(segment)))

    assert policy["Statement"][0]["Resource"] == f"arn:aws:s3:::lake/wh/{written}/*"
    assert policy["Statement"][1]["Condition"]["StringLike"]["s3:prefix"] == [f"wh/{written}/", f"wh/{written}/*"]
    assert json.loads(policy_text(policy)) == policy
    assert policy_text(policy).isascii()


@pytest.mark.parametrize(
    "bucket", ["", "*", "la*ke", "lake/wh", "a", "la ke", "${x}", "a..b", "lake\n", "-lake", "l" * 64]
)
def test_no_policy_is_made_for_a_bucket_that_cannot_exist(bucket: str) -> None:
    with pytest.raises(UngrantablePath):
        session_policy(AWS, a_scope(Location("s3", bucket, ("t",))))
    with pytest.raises(UngrantablePath):
        access_boundary(GCS, a_scope(Location("gs", bucket, ("t",))))


@pytest.mark.parametrize(
    "make",
    [
        lambda scope: session_policy(AWS, scope),
        lambda scope: access_boundary(GCS, scope),
        lambda scope: directory_sas(ADLS, scope, NOW_MS),
    ],
    ids=["s3", "gcs", "adls"],
)
def test_a_whole_bucket_and_an_empty_scope_are_refused(make: Callable[[CredentialScope], Any]) -> None:
    whole = [Location("s3", "lake", ()), Location("gs", "lake", ()), Location("abfss", "lake@company.dfs", ())]
    for place in whole:
        with pytest.raises(Forbidden):
            make(a_scope(place))
    with pytest.raises(Forbidden):
        make(a_scope())
    with pytest.raises(Forbidden):
        make(a_scope(Location("file", "", ("wh", "t"))))


def test_a_policy_that_grows_too_long_is_refused_and_not_widened() -> None:
    places = [f"s3://lake/{'long-name/' * 8}t{number}" for number in range(6)]
    assert len(policy_text(session_policy(AWS, a_scope(*places[:2])))) <= MAX_POLICY_CHARACTERS

    with pytest.raises(UngrantablePath, match="characters"):
        session_policy(AWS, a_scope(*places))


def test_gcs_takes_ten_rules_and_no_more() -> None:
    places = [f"gs://lake/t{number}" for number in range(11)]

    assert len(access_boundary(GCS, a_scope(*places[:10]))["accessBoundary"]["accessBoundaryRules"]) == 10
    with pytest.raises(UngrantablePath):
        access_boundary(GCS, a_scope(*places))


@pytest.mark.parametrize("text", ["it's", "a\\", "a\n", "é", "a' || true || '"])
def test_a_string_of_cel_never_ends_early(text: str) -> None:
    with pytest.raises(Forbidden):
        cel_string(text)


# ADLS


def test_a_sas_starts_before_now_and_ends_with_the_session() -> None:
    terms = directory_sas(
        msgspec.structs.replace(ADLS, session_seconds=1800),
        a_scope("abfss://lake@company.dfs.core.windows.net/wh/t"),
        NOW_MS,
    )

    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert ((now - terms.starts).total_seconds(), (terms.expires - now).total_seconds()) == (900, 1800)
    assert (terms.account, terms.container, terms.directory, terms.depth) == ("company", "lake", "wh/t", 2)


def test_a_flat_account_and_two_directories_get_no_sas() -> None:
    place = "abfss://lake@company.dfs.core.windows.net/wh/t"

    with pytest.raises(UngrantablePath, match="hierarchical"):
        directory_sas(AdlsProfile(hierarchical=False), a_scope(place), NOW_MS)
    with pytest.raises(UngrantablePath, match="one directory"):
        directory_sas(ADLS, a_scope(place, place + "2"), NOW_MS)


@pytest.mark.parametrize(
    "authority", ["lake", "@company", "lake@", "la'ke@company.dfs", "LAKE@company", "lake@a/b", "l--a@company"]
)
def test_a_container_or_account_that_cannot_exist_gets_no_sas(authority: str) -> None:
    with pytest.raises(UngrantablePath):
        directory_sas(ADLS, a_scope(Location("abfss", authority, ("wh", "t"))), NOW_MS)


if __name__ == "__main__":
    for case in CASES:
        for each in LEVELS:
            (GOLDEN / f"{case}-{each.value}.json").write_text(made(case, each), "utf-8")
