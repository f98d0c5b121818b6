"""Opens buckets with obstore: one function for each kind of cloud store, with timeouts and credentials decided here."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from nunatak.errors import BadRequest
from nunatak.objectstore.extras import load_library
from nunatak.objectstore.location import Location
from nunatak.objectstore.profile import (
    AdlsProfile,
    AdlsSecret,
    GcsProfile,
    GcsSecret,
    LocalProfile,
    S3Profile,
    S3Secret,
    StorageProfile,
    StorageSecret,
)

CloudProfile = S3Profile | AdlsProfile | GcsProfile
REQUEST_TIMEOUT, CONNECT_TIMEOUT = "10s", "1s"
# cloud_storage.py repeats failed requests itself: it has to know what each attempt of a PUT may have done.
NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}
# botocore refreshes temporary credentials long before they expire; asking it again costs nothing.
ASK_AGAIN = timedelta(minutes=5)

_ADDRESS = re.compile(r"[0-9.]+(:|/|$)|\[")  # numbers, where a host has a name


def open_bucket(profile: CloudProfile, secret: StorageSecret | None, place: Location) -> Any:
    """Returns an obstore store for the bucket or container of a location; raises BadRequest if the kinds differ."""
    require_scheme(profile, place)
    if isinstance(profile, S3Profile):
        assert secret is None or isinstance(secret, S3Secret)
        return _open_s3(profile, secret, place.authority)
    if isinstance(profile, AdlsProfile):
        assert secret is None or isinstance(secret, AdlsSecret)
        return _open_adls(profile, secret, *container_and_account(place))
    if isinstance(profile, GcsProfile):
        assert secret is None or isinstance(secret, GcsSecret)
        return _open_gcs(profile, secret, place.authority)
    assert_never(profile)


def require_scheme(profile: StorageProfile, place: Location) -> None:
    """Raises BadRequest if the profile is of another kind of store than the location."""
    schemes = {S3Profile: "s3", AdlsProfile: "abfss", GcsProfile: "gs", LocalProfile: "file"}
    wanted = schemes[type(profile)]
    if place.scheme != wanted:
        raise BadRequest(f"Invalid location: {place} needs another storage profile; this one serves {wanted}:")


def container_and_account(place: Location) -> tuple[str, str]:
    """Splits container@account.dfs.core.windows.net; raises BadRequest."""
    container, at, host = place.authority.partition("@")
    account = host.partition(".")[0]
    if not at or not container or not account:
        raise BadRequest(
            f"Invalid location: {place}", hint="Write abfss://container@account.dfs.core.windows.net/folder."
        )
    return container, account


def _client_options(endpoint: str | None) -> dict[str, object]:
    plain = endpoint is not None and endpoint.startswith("http://")
    return {"timeout": REQUEST_TIMEOUT, "connect_timeout": CONNECT_TIMEOUT, "allow_http": plain}


def _open_s3(profile: S3Profile, secret: S3Secret | None, bucket: str) -> Any:
    stores = load_library("obstore.store", "s3")
    endpoint = {} if profile.endpoint is None else {"endpoint": _bucket_endpoint(profile, profile.endpoint, bucket)}
    return stores.S3Store(
        bucket,
        region=profile.region,
        virtual_hosted_style_request=not profile.uses_path_style,
        client_options=_client_options(profile.endpoint),
        retry_config=NO_RETRIES,
        # Always a provider: with plain keys obstore would add a session token that it finds in the environment.
        credential_provider=_fixed_keys(secret) if secret is not None else chain_of_botocore(),
        **endpoint,
    )


def _bucket_endpoint(profile: S3Profile, endpoint: str, bucket: str) -> str:
    """Returns the address of the bucket: with virtual hosts, obstore expects the bucket in the endpoint."""
    if profile.uses_path_style:
        return endpoint
    scheme, _, host = endpoint.partition("://")
    if _ADDRESS.match(host):
        raise BadRequest(f"The endpoint {endpoint} is an IP address, which has no virtual hosts: set path-style=true")
    return f"{scheme}://{bucket}.{host}"


def _fixed_keys(secret: S3Secret) -> Callable[[], dict[str, object]]:
    keys: dict[str, object] = {
        "access_key_id": secret.access_key_id,
        "secret_access_key": secret.secret_access_key,
        "token": secret.session_token,
        "expires_at": None,
    }
    return lambda: keys


def chain_of_botocore() -> Callable[[], dict[str, object]]:
    """Returns a provider that asks botocore's chain: environment, profile, container, instance."""
    session = load_library("botocore.session", "s3").get_session()

    def provide() -> dict[str, object]:
        credentials = session.get_credentials()
        if credentials is None:
            raise ValueError("no credentials in the environment, the profile, the container or the instance")
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + ASK_AGAIN if frozen.token else None,
        }

    return provide


def _open_adls(profile: AdlsProfile, secret: AdlsSecret | None, container: str, account: str) -> Any:
    stores = load_library("obstore.store", "azure")
    options: dict[str, Any] = {} if profile.endpoint is None else {"endpoint": profile.endpoint}
    if secret is not None and secret.account_key is not None:
        options["account_key"] = secret.account_key
    elif secret is not None:
        options |= {"client_id": secret.client_id, "client_secret": secret.client_secret}
        options |= {"tenant_id": profile.tenant_id}
    else:
        options["credential_provider"] = load_library("obstore.auth.azure", "azure").AzureCredentialProvider()
    return stores.AzureStore(
        container,
        account_name=account,
        client_options=_client_options(profile.endpoint),
        retry_config=NO_RETRIES,
        **options,
    )


def _open_gcs(profile: GcsProfile, secret: GcsSecret | None, bucket: str) -> Any:
    stores = load_library("obstore.store", "gcs")
    options: dict[str, Any] = {} if profile.endpoint is None else {"base_url": profile.endpoint}
    if secret is not None and secret.service_account_key is not None:
        json.loads(secret.service_account_key)
        options["service_account_key"] = secret.service_account_key
    elif secret is not None and secret.access_token is not None:
        token = {"token": secret.access_token, "expires_at": None}
        options["credential_provider"] = lambda: token
    return stores.GCSStore(bucket, client_options=_client_options(profile.endpoint), retry_config=NO_RETRIES, **options)
