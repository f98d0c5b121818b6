"""The credential access boundary of a vended GCS token: the roles it keeps, and the object names they hold for."""

from typing import Any

from nunatak.errors import Forbidden
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import GcsProfile
from nunatak.objectstore.storage import AccessLevel, CredentialScope
from nunatak.objectstore.vending.granted_paths import UngrantablePath, granted_bucket, granted_path

MAX_RULES = 10  # Google's limit for one boundary

_ROLES = {
    AccessLevel.READ: "inRole:roles/storage.objectViewer",
    AccessLevel.READ_WRITE: "inRole:roles/storage.objectUser",
}


def access_boundary(profile: GcsProfile, scope: CredentialScope) -> dict[str, Any]:
    """Returns the boundary for the token exchange; raises Forbidden rather than permit anything outside the places.

    The bucket needs uniform bucket-level access; Google refuses the exchange's token elsewhere.
    """
    if not 0 < len(scope.places) <= MAX_RULES:
        raise UngrantablePath(f"A token of GCS opens 1 to {MAX_RULES} places, not {len(scope.places)}")
    return {"accessBoundary": {"accessBoundaryRules": [_rule(place, _ROLES[scope.level]) for place in scope.places]}}


def _rule(place: Location, role: str) -> dict[str, Any]:
    bucket, path = granted_bucket(place), granted_path(place, "gs")
    names = cel_string(f"projects/_/buckets/{bucket}/objects/{path}/")
    listed = cel_string(f"{path}/")
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [role],
        "availabilityCondition": {
            "expression": f"resource.name.startsWith({names}) || "
            f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith({listed})"
        },
    }


def cel_string(text: str) -> str:
    """Returns a string literal of CEL; raises Forbidden for text that would need an escape."""
    if not text.isascii() or not text.isprintable() or "'" in text or "\\" in text:
        raise Forbidden("A boundary of GCS is made of plain text only")
    return f"'{text}'"
