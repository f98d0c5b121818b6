"""The evaluator of policies itself: it permits what the providers' documents say, and sees each published attack."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.storage.filedatalake import generate_directory_sas, generate_file_system_sas

from tests.support.evaluator import gcs, sas
from tests.support.evaluator.iam import Dialect, InvalidPolicy, Request, SessionPolicy, list_objects
from tests.support.judges import ACCOUNT, DELEGATION_KEY, sdk_delegation_key

AWS, LITERAL = Dialect.AWS, Dialect.LITERAL


def allow(resource: str | list[str], action: str | list[str] = "s3:GetObject", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def policy(*statements: dict[str, Any], dialect: Dialect = AWS) -> SessionPolicy:
    return SessionPolicy({"Version": "2012-10-17", "Statement": list(statements)}, dialect)


def get(key: str, bucket: str = "lake") -> Request:
    return Request("s3:GetObject", bucket, key)


@pytest.mark.parametrize("dialect", Dialect)
def test_a_prefix_opens_its_own_keys(dialect: Dialect) -> None:
    read = policy(allow("arn:aws:s3:::lake/wh/t1/*"), dialect=dialect)

    assert read.permits(get("wh/t1/data/a.parquet"))
    assert read.permits(get("wh/t1/"))
    for key in ("wh/t10/a", "wh/t1", "wh/t2/a", "wh/a", "a"):
        assert not read.permits(get(key)), key
    assert not read.permits(get("wh/t1/a", bucket="lake2"))
    assert not read.permits(Request("s3:PutObject", "lake", "wh/t1/a"))


def test_a_missing_slash_matches_the_neighbour_and_another_bucket() -> None:
    """Nessie#12703 and the prefix bug of Polaris#4884: the evaluator must see both."""
    assert policy(allow("arn:aws:s3:::lake/wh/t1*")).permits(get("wh/t10/a"))
    assert policy(allow("arn:aws:s3:::lakewh/t1/*")).permits(get("t1/a", bucket="lakewh"))
    assert not policy(allow("arn:aws:s3:::lakewh/t1/*")).permits(get("wh/t1/a"))


def test_a_leading_wildcard_reaches_every_prefix_that_ends_alike() -> None:
    """Nessie's policies for the object storage layout: * spans slashes."""
    assert policy(allow("arn:aws:s3:::lake/*/wh/t1/*")).permits(get("other/tenant/wh/t1/a"))


@pytest.mark.parametrize("name", ["*", "t*", "?1"])
def test_a_wildcard_in_a_name_opens_other_tables(name: str) -> None:
    """CVE-2026-42810, Lakekeeper#1740, unitycatalog#1715."""
    assert policy(allow(f"arn:aws:s3:::lake/wh/{name}/*")).permits(get("wh/t1/a"))


def test_an_escaped_wildcard_is_a_character_on_aws_only() -> None:
    """MinIO and other makes do not know ${*}: there the star stays a wildcard between literal characters."""
    escaped = allow("arn:aws:s3:::lake/wh/t${*}/*")

    assert policy(escaped).permits(get("wh/t*/a"))
    assert not policy(escaped).permits(get("wh/t1/a"))
    assert not policy(escaped, dialect=LITERAL).permits(get("wh/t*/a"))
    assert policy(escaped, dialect=LITERAL).permits(get("wh/t${anything/else}/a"))
    assert policy(allow("arn:aws:s3:::lake/a${$}{x${?}/*")).permits(get("a${x?/f"))


def test_variables_count_only_since_2012() -> None:
    old = SessionPolicy({"Version": "2008-10-17", "Statement": [allow("arn:aws:s3:::lake/${*}/*")]}, AWS)

    assert old.permits(get("${x}/a"))
    assert not old.permits(get("*/a"))


def test_deny_decides() -> None:
    both = policy(allow("*"), {"Effect": "Deny", "Action": "s3:Get*", "Resource": "arn:aws:s3:::lake/secret/*"})

    assert both.permits(get("open/a"))
    assert not both.permits(get("secret/a"))


def test_actions_are_globs_without_case() -> None:
    assert policy(allow("*", "s3:getobject")).permits(get("a"))
    assert policy(allow("*", "s3:*Object")).permits(Request("s3:DeleteObject", "lake", "a"))
    assert not policy(allow("*", "s3:GetObject?")).permits(get("a"))


def test_a_list_is_limited_by_its_prefix() -> None:
    condition = {"StringLike": {"s3:prefix": ["wh/t1/", "wh/t1/*"]}}
    listing = policy(allow("arn:aws:s3:::lake", "s3:ListBucket", Condition=condition))

    assert listing.permits(list_objects("lake", "wh/t1/"))
    assert listing.permits(list_objects("lake", "wh/t1/data/"))
    for prefix in (None, "", "wh/t1", "wh/t10/", "wh/"):
        assert not listing.permits(list_objects("lake", prefix)), prefix
    assert policy(allow("*", "s3:ListBucket", Condition={"StringLike": {"s3:prefix": "wh/t1*"}})).permits(
        list_objects("lake", "wh/t10/")
    )


def test_string_conditions_follow_the_documents() -> None:
    def holds(operator: str, values: str | list[str], prefix: str | None) -> bool:
        statement = allow("*", "s3:ListBucket", Condition={operator: {"S3:Prefix": values}})
        return policy(statement).permits(list_objects("lake", prefix))

    assert holds("StringEquals", "a/*", "a/*")
    assert not holds("StringEquals", "a/*", "a/b")
    assert holds("StringEquals", "a${*}", "a*")
    assert holds("StringNotEquals", ["a", "b"], "c")
    assert not holds("StringNotEquals", ["a", "b"], "b")
    assert holds("StringNotLike", "a*", None)
    assert holds("StringLikeIfExists", "a*", None)
    assert not holds("StringLike", "*", None)


@pytest.mark.parametrize(
    "statement",
    [
        {"Effect": "Allow", "NotAction": "s3:GetObject", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "NotResource": "arn:aws:s3:::lake/*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", "Principal": "*"},
        {"Effect": "allow", "Action": "s3:GetObject", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:GetObject"},
        {"Effect": "Allow", "Action": [], "Resource": "*"},
        {"Effect": "Allow", "Action": "GetObject", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "lake/t1/*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::lake/${aws:username}/*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::lake/${/*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", "Condition": {"Bool": {"a": "true"}}},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::" + "a" * 2000},
    ],
)
def test_a_policy_that_is_not_understood_is_refused(statement: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        policy(statement)


# --- GCS ---

OBJECTS = "resource.name.startsWith('projects/_/buckets/lake/objects/{}')"
LISTED = "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{}')"


def boundary(expression: str | None, *roles: str, bucket: str = "lake") -> gcs.Boundary:
    rule: dict[str, Any] = {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [f"inRole:roles/storage.{role}" for role in roles or ("objectViewer",)],
    }
    if expression is not None:
        rule["availabilityCondition"] = {"expression": expression}
    return gcs.Boundary({"accessBoundary": {"accessBoundaryRules": [rule]}})


def test_a_boundary_opens_its_prefix() -> None:
    reading = boundary(f"{OBJECTS} || {LISTED}".format("wh/t1/", "wh/t1/"))

    assert reading.permits(gcs.get("lake", "wh/t1/a"))
    assert reading.permits(gcs.list_objects("lake", "wh/t1/data"))
    for operation in (
        gcs.get("lake", "wh/t10/a"),
        gcs.get("lake2", "wh/t1/a"),
        gcs.list_objects("lake", "wh/t1"),
        gcs.list_objects("lake", ""),
        gcs.create("lake", "wh/t1/a"),
        gcs.delete("lake", "wh/t1/a"),
        gcs.get_bucket("lake"),
    ):
        assert not reading.permits(operation), operation


def test_a_prefix_without_a_slash_opens_the_neighbour() -> None:
    """Polaris#4884."""
    assert boundary(OBJECTS.format("wh/t1")).permits(gcs.get("lake", "wh/t10/a"))


def test_a_quote_in_a_name_opens_the_bucket() -> None:
    """CVE-2026-42811: the name ends the string and adds a condition that always holds."""
    injected = OBJECTS.format("t') || resource.name.startsWith('projects/_/buckets/lake/objects/")

    assert boundary(injected).permits(gcs.get("lake", "anything"))
    escaped = OBJECTS.format(r"t\') || resource.name.startsWith(\'projects/_/buckets/lake/objects/")
    assert not boundary(escaped).permits(gcs.get("lake", "anything"))
    assert boundary(OBJECTS.format(r"it\'s/")).permits(gcs.get("lake", "it's/a"))


def test_an_empty_list_prefix_opens_every_object() -> None:
    """The attribute of a request that lists nothing is the default, which starts with the empty string."""
    assert boundary(LISTED.format("")).permits(gcs.get("lake", "anything"))


def test_no_condition_opens_the_bucket() -> None:
    assert boundary(None).permits(gcs.get("lake", "anything"))


def test_operators_bind_as_in_cel() -> None:
    def holds(expression: str) -> bool:
        return gcs.parse_condition(expression)(gcs.get("lake", "a"))

    assert holds("true || false && false")
    assert not holds("(true || false) && false")
    assert holds("!false && !(true && false)")
    assert holds("resource.name == 'projects/_/buckets/lake/objects/a'")
    assert holds('resource.name != "b" && resource.name.endsWith("/a")')
    assert holds(r"'\u0061\x62\143\U00000064' == 'abcd'")
    assert holds(r"r'\'.endsWith('\\')")
    assert holds("'''it's'''.endsWith(\"'s\")")


@pytest.mark.parametrize(
    "expression",
    [
        "resource.name.startsWith('it's')",
        "resource.name.startsWith('a') ||",
        "resource.name.matches('.*')",
        "resource.type == 'x'",
        "api.getAttribute('x', '').startsWith('a')",
        r"resource.name.startsWith('\q')",
        "resource.name.startsWith('a",
        "resource.name.startsWith('a\nb')",
        "resource.name.startsWith('a'))",
        "'a'",
        "",
    ],
)
def test_a_condition_that_is_not_understood_is_refused(expression: str) -> None:
    with pytest.raises(gcs.InvalidBoundary):
        gcs.parse_condition(expression)


def test_a_boundary_names_one_bucket_and_known_roles() -> None:
    with pytest.raises(gcs.InvalidBoundary):
        boundary(None, bucket="lake/objects")
    with pytest.raises(gcs.InvalidBoundary):
        boundary(None, "everything")
    with pytest.raises(gcs.InvalidBoundary):
        gcs.Boundary({"accessBoundary": {"accessBoundaryRules": []}})


# --- ADLS ---

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def directory_token(directory: str, permission: str = "rl", **more: Any) -> str:
    ends = NOW + timedelta(hours=1)
    return generate_directory_sas(
        ACCOUNT, "lake", directory, sdk_delegation_key(), permission=permission, expiry=ends, protocol="https", **more
    )


def permits(token: str, path: str, permission: str = sas.READ, container: str = "lake", https: bool = True) -> bool:
    return sas.Sas(ACCOUNT, token, DELEGATION_KEY).permits(sas.Request(container, path, permission, https), NOW)


def test_a_directory_opens_what_is_below_it() -> None:
    token = directory_token("wh/t1")

    assert permits(token, "wh/t1/data/a")
    assert permits(token, "wh/t1/", sas.LIST)
    assert permits(token, "wh/t1/data/", sas.LIST)
    for path in ("wh/t10/a", "wh/t2/a", "wh/a", "a", "wh//t1/a", "/wh/t1/a", "x/wh/t1/a"):
        assert not permits(token, path), path
    for path in ("wh/t1", "wh/", "", "wh/t10/"):
        assert not permits(token, path, sas.LIST), path
    assert not permits(token, "wh/t1/a", container="other")
    assert not permits(token, "wh/t1/a", sas.WRITE)
    assert not permits(token, "wh/t1/a", sas.DELETE)
    assert not permits(token, "wh/t1/a", https=False)


def test_a_token_ends_and_begins() -> None:
    token = sas.Sas(ACCOUNT, directory_token("wh/t1", start=NOW), DELEGATION_KEY)
    request = sas.Request("lake", "wh/t1/a", sas.READ)

    assert token.permits(request, NOW)
    assert not token.permits(request, NOW - timedelta(seconds=1))
    assert not token.permits(request, NOW + timedelta(hours=1))


def test_changed_fields_break_the_signature() -> None:
    token = directory_token("wh/t1")

    assert not permits(token.replace("sdd=2", "sdd=1"), "wh/t1/a")
    assert not permits(token.replace("sp=rl", "sp=rwl"), "wh/t1/a")
    assert not permits(token.replace("sr=d", "sr=c"), "wh/t1/a")
    assert not permits(token.replace("spr=https", "spr=https%2Chttp"), "wh/t1/a")


def test_a_container_token_opens_the_container() -> None:
    """What a catalog must not hand out for one table; the evaluator must see it."""
    ends = NOW + timedelta(hours=1)
    token = generate_file_system_sas(ACCOUNT, "lake", sdk_delegation_key(), permission="rl", expiry=ends)

    assert permits(token, "wh/t10/a")
    assert permits(token, "", sas.LIST)


@pytest.mark.parametrize("change", [("sr=d", "sr=x"), ("&sdd=2", ""), ("sdd=2", "sdd=0"), ("sr=d", "sr=d&sr=c")])
def test_a_token_that_is_not_understood_is_refused(change: tuple[str, str]) -> None:
    with pytest.raises(sas.InvalidSas):
        permits(directory_token("wh/t1").replace(*change), "wh/t1/a")
