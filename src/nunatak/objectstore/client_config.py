"""The properties that every client of a warehouse needs to reach its store; no secret is among them."""

from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import AdlsProfile, GcsProfile, LocalProfile, S3Profile, StorageProfile


def client_config(profile: StorageProfile, home: Location) -> dict[str, str]:
    """Returns endpoint, region and path style under the names that Iceberg's clients know."""
    if isinstance(profile, LocalProfile):
        return {}
    if isinstance(profile, S3Profile):
        found = {"s3.region": profile.region, "client.region": profile.region}
        found["s3.path-style-access"] = str(profile.uses_path_style).lower()
        return found if profile.endpoint is None else {"s3.endpoint": profile.endpoint, **found}
    if isinstance(profile, AdlsProfile):
        host = home.authority.rpartition("@")[2]
        return {} if profile.endpoint is None else {f"adls.connection-string.{host}": profile.endpoint}
    assert isinstance(profile, GcsProfile)
    named = {"gcs.service.host": profile.endpoint, "gcs.project-id": profile.project_id}
    return {name: value for name, value in named.items() if value is not None}
