"""The session policy of a vended S3 credential: what may be done below the places of one table, and nothing else."""

import json
from collections.abc import Iterable
from typing import Any

from nunatak.errors import Forbidden
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import S3Profile
from nunatak.objectstore.storage import AccessLevel, CredentialScope
from nunatak.objectstore.vending.granted_paths import UngrantablePath, granted_bucket, granted_path

# AWS refuses a policy by its packed size, before the documented 2,048 characters. This leaves room for session tags.
MAX_POLICY_CHARACTERS = 1200

_ACTIONS = {
    AccessLevel.READ: ["s3:GetObject"],
    AccessLevel.READ_WRITE: ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
}
# AWS replaces these policy variables by the character itself, without its meaning in a pattern.
_ESCAPES = str.maketrans({"*": "${*}", "?": "${?}", "$": "${$}"})
_PARTITIONS = (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"))


def session_policy(profile: S3Profile, scope: CredentialScope) -> dict[str, Any]:
    """Returns the policy for AssumeRole; raises Forbidden rather than permit anything outside the places.

    No pattern begins with a wildcard, and every prefix ends with a slash: `t1` does not open `t10`.
    """
    if not scope.places:
        raise Forbidden("A credential needs at least one place")
    arn = f"arn:{_partition(profile)}:s3:::"
    paths = [(granted_bucket(place), _pattern(profile, place)) for place in scope.places]
    statements: list[dict[str, Any]] = [
        {
            "Effect": "Allow",
            "Action": _ACTIONS[scope.level],
            "Resource": _one_or_list(f"{arn}{bucket}/{path}/*" for bucket, path in paths),
        }
    ]
    for bucket in dict.fromkeys(bucket for bucket, _ in paths):
        prefixes = [form for other, path in paths if other == bucket for form in (f"{path}/", f"{path}/*")]
        statements.append(
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": f"{arn}{bucket}",
                "Condition": {"StringLike": {"s3:prefix": prefixes}},
            }
        )
    policy = {"Version": "2012-10-17", "Statement": statements}
    size = len(policy_text(policy))
    if size > MAX_POLICY_CHARACTERS:
        raise UngrantablePath(
            f"The locations of the table need a policy of {size} characters; at most {MAX_POLICY_CHARACTERS} are sent",
            hint="Use shorter locations, or keep write.data.path and its like inside the table's location.",
        )
    return policy


def policy_text(policy: dict[str, Any]) -> str:
    """Returns the policy as STS takes it: ASCII, without spaces between tokens."""
    return json.dumps(policy, separators=(",", ":"))


def _pattern(profile: S3Profile, place: Location) -> str:
    path = granted_path(place, "s3", literal_keys=profile.is_aws)
    return path.translate(_ESCAPES) if profile.is_aws else path


def _partition(profile: S3Profile) -> str:
    if not profile.is_aws:
        return "aws"
    return next((name for start, name in _PARTITIONS if profile.region.startswith(start)), "aws")


def _one_or_list(texts: Iterable[str]) -> str | list[str]:
    found = list(texts)
    return found[0] if len(found) == 1 else found
