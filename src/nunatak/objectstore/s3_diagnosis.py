"""Explains why S3 refuses a warehouse, by a few requests of botocore: region, path style, bucket, keys, permissions."""

import asyncio
from typing import Any

from nunatak.objectstore.extras import load_library
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import S3Profile, S3Secret, StorageSecret

TIMEOUT_SECONDS = 5
_WORDS = {
    "InvalidAccessKeyId": "The store does not know the access-key-id",
    "SignatureDoesNotMatch": "The secret-access-key is not the one of the access-key-id",
    "ExpiredToken": "The session-token has expired",
    "InvalidToken": "The session-token is not valid",
    "RequestTimeTooSkewed": "The clocks of this server and of the store differ too much",
    "AccessDenied": "The keys lack permissions: they need s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject "
    "and s3:DeleteObject on its objects",
}


async def explain_s3_failure(profile: S3Profile, secret: StorageSecret | None, home: Location) -> str:
    """Returns the likely cause in words."""
    return await asyncio.to_thread(_explain, profile, secret, home.authority)


async def bucket_region(profile: S3Profile, secret: StorageSecret | None, bucket: str) -> str | None:
    """Returns the region of a bucket; None if the store does not tell."""
    return await asyncio.to_thread(_bucket_region, profile, secret, bucket)


def s3_client(profile: S3Profile, secret: StorageSecret | None, *, path_style: bool | None = None) -> Any:
    """Returns a botocore client that asks once; close it."""
    keys: dict[str, Any] = {}
    if isinstance(secret, S3Secret):
        keys = {
            "aws_access_key_id": secret.access_key_id,
            "aws_secret_access_key": secret.secret_access_key,
            "aws_session_token": secret.session_token,
        }
    by_path = profile.uses_path_style if path_style is None else path_style
    config = load_library("botocore.config", "s3").Config(
        retries={"max_attempts": 0},
        connect_timeout=TIMEOUT_SECONDS,
        read_timeout=TIMEOUT_SECONDS,
        s3={"addressing_style": "path" if by_path else "virtual"},
    )
    session = load_library("botocore.session", "s3").Session()
    return session.create_client("s3", region_name=profile.region, endpoint_url=profile.endpoint, config=config, **keys)


def _explain(profile: S3Profile, secret: StorageSecret | None, bucket: str) -> str:
    code, region = _try_list(profile, secret, bucket, path_style=None)
    if region is not None and region != profile.region:
        return f"The bucket {bucket} lies in {region}, but the profile names the region {profile.region}"
    if code is None and profile.endpoint is not None and not profile.uses_path_style:
        return "The store answers if the bucket is a part of the path, not of the host name: set path-style=true"
    if code is None:
        return "The bucket can be listed: the keys lack a permission for objects, such as s3:PutObject"
    other_style = not profile.uses_path_style
    if code not in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        other, _ = _try_list(profile, secret, bucket, path_style=other_style)
        if other is None:
            where = "the path" if other_style else "the host name"
            return f"The store answers if the bucket is a part of {where}: set path-style={str(other_style).lower()}"
    if code in ("NoSuchBucket", "404"):
        return f"The bucket {bucket} does not exist in this store"
    if code in ("PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
        return f"The bucket {bucket} lies in another region than {profile.region}"
    return _WORDS.get(code, f"The store answers {code}")


def _try_list(
    profile: S3Profile, secret: StorageSecret | None, bucket: str, *, path_style: bool | None
) -> tuple[str | None, str | None]:
    """Lists one object; returns the code of the error, if any, and the region that the store names."""
    exceptions = load_library("botocore.exceptions", "s3")
    client = s3_client(profile, secret, path_style=path_style)
    try:
        answer = client.list_objects_v2(Bucket=bucket, MaxKeys=1)
        return None, _region_in(answer)
    except exceptions.ClientError as error:
        named = error.response.get("Error", {}).get("Region")
        return str(error.response.get("Error", {}).get("Code", "unknown")), named or _region_in(error.response)
    except (exceptions.BotoCoreError, ValueError) as error:
        return type(error).__name__, None
    finally:
        client.close()


def _bucket_region(profile: S3Profile, secret: StorageSecret | None, bucket: str) -> str | None:
    return _try_list(profile, secret, bucket, path_style=None)[1]


def _region_in(answer: dict[str, Any]) -> str | None:
    found = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("x-amz-bucket-region")
    return None if found is None else str(found)
