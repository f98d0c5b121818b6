"""Scopes and profiles for the tests of vending."""

from nunatak.objectstore.location import Location, parse_location
from nunatak.objectstore.profile import AdlsProfile, GcsProfile, S3Profile
from nunatak.objectstore.storage import AccessLevel, CredentialScope

AWS = S3Profile(region="eu-central-1", role_arn="arn:aws:iam::123456789012:role/nunatak")
COMPATIBLE = S3Profile(endpoint="http://127.0.0.1:9000", role_arn="arn:aws:iam::000000000000:role/vend")
ADLS = AdlsProfile(tenant_id="5f4dcc3b-0000-4000-8000-000000000000")
GCS = GcsProfile(project_id="lake")

FOLDER = "wh/sales/orders-0197a9c1-6a2e-7c3f-9d4e-5b6a7c8d9e0f"
LEVELS = [AccessLevel.READ, AccessLevel.READ_WRITE]


def a_scope(*places: str | Location, level: AccessLevel = AccessLevel.READ, principal: str = "ana") -> CredentialScope:
    parsed = tuple(parse_location(each) if isinstance(each, str) else each for each in places)
    return CredentialScope(principal, "0197a9c1-6a2e-7c3f-9d4e-5b6a7c8d9e0f", parsed, level)
