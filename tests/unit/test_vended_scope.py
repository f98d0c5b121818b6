"""S1: a vended credential opens the table's own place and nothing else, whatever the place is called.

Generated tables on every kind of store, judged by an evaluator that knows nothing of the code that makes the policies.
`make soak SOAK=S1` runs 100,000 of them.
"""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from nunatak.errors import Forbidden
from nunatak.objectstore.profile import GcsProfile, S3Profile
from nunatak.objectstore.storage import AccessLevel, CredentialScope
from tests.support.evaluator.gcs import InvalidBoundary
from tests.support.evaluator.iam import InvalidPolicy
from tests.support.evaluator.sas import InvalidSas
from tests.support.generated_scopes import (
    GeneratedTable,
    generate,
    inside_keys,
    inside_prefixes,
    outside_buckets,
    outside_keys,
    outside_prefixes,
)
from tests.support.judges import JUDGES, Judge, judge_aws, judge_gcs, judge_s3_compatible
from tests.support.promises import show
from tests.support.workload import seeded

TABLES = int(os.environ.get("NUNATAK_TEST_TABLES", "400"))
BUCKETS = ["lake", "lake-1", "my-lake.eu"]
READ, READ_WRITE = AccessLevel.READ, AccessLevel.READ_WRITE


def permitted_outside(judge: Judge, table: GeneratedTable) -> list[str]:
    """Returns every operation outside the table that the credential permits."""
    keys = [(table.bucket, key) for key in outside_keys(table)] + list(outside_buckets(table))
    operations: dict[str, Callable[[str, str], bool]] = {
        "read": judge.reads,
        "write": judge.writes,
        "delete": judge.deletes,
    }
    found = [f"{name} {at}" for at in keys for name, permits in operations.items() if permits(*at)]
    found += [f"list {prefix!r}" for prefix in outside_prefixes(table) if judge.lists(table.bucket, prefix)]
    found += [f"list {bucket}/{key}" for bucket, key in outside_buckets(table) if judge.lists(bucket, key)]
    return found + [f"{other} inside" for other in judge.others(table.bucket, inside_keys(table)[0])]


def wrong_inside(judge: Judge, table: GeneratedTable, level: AccessLevel) -> list[str]:
    """Returns every operation inside the table that is not decided as the level says."""
    writing = level is READ_WRITE
    found = []
    for key in inside_keys(table):
        decided = {
            "read": (judge.reads(table.bucket, key), True),
            "write": (judge.writes(table.bucket, key), writing),
            "delete": (judge.deletes(table.bucket, key), writing),
        }
        found += [f"{name} {key}: {got}" for name, (got, expected) in decided.items() if got is not expected]
    return found + [f"list {each}" for each in inside_prefixes(table) if not judge.lists(table.bucket, each)]


def faults_of(judge_of: Callable[..., Judge], table: GeneratedTable, level: AccessLevel) -> list[str] | None:
    """Returns what is wrong with the credential for a table; None if there is none, which is right for odd names."""
    try:
        judge = judge_of(table, level)
    except Forbidden as refusal:
        return [f"refused: {refusal}"] if table.is_plain else None
    except (InvalidPolicy, InvalidBoundary, InvalidSas) as error:
        return [f"the provider would refuse it: {error}"]
    return permitted_outside(judge, table) + wrong_inside(judge, table, level)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("store", JUDGES)
def test_a_credential_opens_its_table_and_nothing_else(store: str) -> None:
    chance = seeded(f"scopes on {store}")
    vended = refused = 0
    for _ in range(TABLES):
        bucket = chance.choice(BUCKETS[:2] if store == "ADLS" else BUCKETS)  # a container has no dots
        table, level = generate(chance, bucket), chance.choice([READ, READ_WRITE])
        faults = faults_of(JUDGES[store], table, level)
        assert not faults, (table, level, faults[:5])
        vended, refused = vended + (faults is not None), refused + (faults is None)
    show(
        "S1", f"credentials on {store} open their table and nothing else", tables=TABLES, vended=vended, refused=refused
    )
    assert vended > TABLES / 3


# Names that have broken other catalogs (RELIABILITY of peers: Polaris, Lakekeeper, Unity Catalog, Nessie, rustberg).
PUBLISHED = [
    ("wh", "*"),
    ("*", "*"),
    ("wh", "t?"),
    ("wh", "${aws:username}"),
    ("wh", "${*}"),
    ("wh", "t') || resource.name.startsWith('projects/_/buckets/lake/objects/"),
    ("wh", "t\\') || true || ('"),
    ("wh", "a%2F..%2Fb"),
    ("wh", "%2e%2e", "b"),
    ("wh", "..", "b"),
    ("wh", "", "b"),
    ("wh", "a／b"),
    ("wh", "t."),
    ('wh","arn:aws:s3:::lake/*',),
    ("*",),
    (),
]


@pytest.mark.parametrize("level", AccessLevel)
@pytest.mark.parametrize("segments", PUBLISHED, ids=repr)
@pytest.mark.parametrize("store", JUDGES)
def test_a_published_attack_opens_nothing(store: str, segments: tuple[str, ...], level: AccessLevel) -> None:
    assert not faults_of(JUDGES[store], GeneratedTable("lake", segments or ("",)), level)


@pytest.mark.parametrize("bucket", ["*", "lake*", "?", "lake/..", "", "${aws:username}", "a", "ada:s3cret@lake"])
@pytest.mark.parametrize("store", JUDGES)
def test_a_bucket_that_is_none_gets_no_credential(store: str, bucket: str) -> None:
    with pytest.raises(Forbidden):
        JUDGES[store](GeneratedTable(bucket, ("wh", "t1")), READ)


# --- the search bites: each of these mistakes was made by somebody ---


def s3_policy(prefix: str, bucket: str = "lake", listed: str | None = None) -> dict[str, Any]:
    list_prefixes = [f"{prefix}/", f"{prefix}/*"] if listed is None else [listed]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": f"arn:aws:s3:::{bucket}/{prefix}/*"},
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": f"arn:aws:s3:::{bucket}",
                "Condition": {"StringLike": {"s3:prefix": list_prefixes}},
            },
        ],
    }


def path_of(scope: CredentialScope) -> str:
    return "/".join(scope.places[0].segments)


def unescaped(profile: S3Profile, scope: CredentialScope) -> dict[str, Any]:
    return s3_policy(path_of(scope))


def without_slash(profile: S3Profile, scope: CredentialScope) -> dict[str, Any]:
    policy = s3_policy(path_of(scope))
    policy["Statement"][0]["Resource"] = f"arn:aws:s3:::lake/{path_of(scope)}*"
    return policy


def list_without_slash(profile: S3Profile, scope: CredentialScope) -> dict[str, Any]:
    return s3_policy(path_of(scope), listed=f"{path_of(scope)}*")


def missing_first_slash(profile: S3Profile, scope: CredentialScope) -> dict[str, Any]:
    policy = s3_policy(path_of(scope))
    policy["Statement"][0]["Resource"] = f"arn:aws:s3:::lake{path_of(scope)}/*"
    return policy


def leading_wildcard(profile: S3Profile, scope: CredentialScope) -> dict[str, Any]:
    policy = s3_policy(path_of(scope))
    policy["Statement"][0]["Resource"] = f"arn:aws:s3:::lake/*{path_of(scope)}/*"
    return policy


def escaped_everywhere(profile: S3Profile, scope: CredentialScope) -> dict[str, Any]:
    """Right on AWS; other makes read ${*} as it is written."""
    path = path_of(scope)
    return s3_policy("".join(f"${{{each}}}" if each in "*?$" else each for each in path))


def unquoted_condition(profile: GcsProfile, scope: CredentialScope) -> dict[str, Any]:
    path = path_of(scope)
    rule = {
        "availableResource": "//storage.googleapis.com/projects/_/buckets/lake",
        "availablePermissions": ["inRole:roles/storage.objectViewer"],
        "availabilityCondition": {
            "expression": f"resource.name.startsWith('projects/_/buckets/lake/objects/{path}/') || "
            f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{path}/')"
        },
    }
    return {"accessBoundary": {"accessBoundaryRules": [rule]}}


def condition_without_slash(profile: GcsProfile, scope: CredentialScope) -> dict[str, Any]:
    made = unquoted_condition(profile, scope)
    condition = made["accessBoundary"]["accessBoundaryRules"][0]["availabilityCondition"]
    condition["expression"] = condition["expression"].replace("/')", "')")
    return made


MISTAKES: dict[str, tuple[Callable[..., Judge], Callable[..., Any]]] = {
    "wildcards are not escaped": (judge_aws, unescaped),
    "the resource has no slash at its end": (judge_aws, without_slash),
    "the list has no slash at its end": (judge_aws, list_without_slash),
    "no slash between bucket and path": (judge_aws, missing_first_slash),
    "a wildcard before the path": (judge_aws, leading_wildcard),
    "escapes of AWS on another store": (judge_s3_compatible, escaped_everywhere),
    "quotes in a condition": (judge_gcs, unquoted_condition),
    "the condition has no slash at its end": (judge_gcs, condition_without_slash),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_mistake(mistake: str) -> None:
    judge_of, maker = MISTAKES[mistake]
    chance = random.Random(mistake)

    def is_found() -> bool:
        table = generate(chance, "lake")
        faults = faults_of(lambda table, level: judge_of(table, level, maker), table, READ)
        return any(not fault.startswith(("refused", "the provider")) for fault in faults or ())

    assert any(is_found() for _ in range(400))


def test_the_policy_with_aws_escapes_is_right_on_aws() -> None:
    """So what the search finds in it for other stores is the dialect, not the policy."""
    table = GeneratedTable("lake", ("wh", "t*${x}?"))

    judge = judge_aws(table, READ, escaped_everywhere)

    assert permitted_outside(judge, table) == []
