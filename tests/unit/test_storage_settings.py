"""Warehouses of the settings on object stores: their profiles and secrets, by variables, tables and JSON."""

import json
from pathlib import Path

import pytest

from nunatak.checks import check, read_places
from nunatak.objectstore.profile import AdlsProfile, AdlsSecret, GcsProfile, LocalProfile, S3Profile, S3Secret
from nunatak.settings import Settings, SettingsError, files_with_secrets, load

SECRET = "wJalrXUtnFEMI-K7MDENG"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "nunatak.toml"
    path.touch(mode=0o600)
    return path


def loaded(config: Path, **environment: str) -> Settings:
    variables = {f"NUNATAK_{name.upper()}": value for name, value in environment.items()}
    return load({"data": config.parent / "data"}, {"NUNATAK_CONFIG": str(config), **variables})


def test_variables_describe_a_store_that_speaks_s3(config: Path) -> None:
    settings = loaded(
        config,
        warehouse="s3://lake/tables",
        s3_endpoint="http://127.0.0.1:9000",
        s3_region="eu-north-1",
        s3_access_key_id="key",
        s3_secret_access_key=SECRET,
        s3_role_arn="arn:aws:iam::1:role/vend",
    )

    check(settings)
    default = read_places(settings)[0]["default"]

    assert default.location == "s3://lake/tables"
    assert default.profile == S3Profile(
        endpoint="http://127.0.0.1:9000", region="eu-north-1", role_arn="arn:aws:iam::1:role/vend"
    )
    assert default.secret == S3Secret("key", SECRET)
    assert SECRET not in f"{settings}{default}"


def test_tables_of_the_file_describe_several_clouds(config: Path) -> None:
    config.write_text(
        f"""
        warehouse = "s3://lake"
        [warehouses]
        azure = "abfss://box@acme.dfs.core.windows.net/lake"
        google = "gs://lake/tables"
        here = "file:///srv/lake"
        [storage.default]
        region = "eu-west-1"
        [storage.azure]
        tenant-id = "tenant"
        [storage_secrets.azure]
        client-id = "client"
        client-secret = "{SECRET}"
        """
    )
    settings = loaded(config)

    check(settings)
    places = read_places(settings)[0]

    assert {name: place.profile for name, place in places.items()} == {
        "default": S3Profile(region="eu-west-1"),
        "azure": AdlsProfile(tenant_id="tenant"),
        "google": GcsProfile(),
        "here": LocalProfile(),
    }
    assert places["azure"].secret == AdlsSecret(client_id="client", client_secret=SECRET)
    assert places["default"].secret is None  # the usual chain of AWS
    assert files_with_secrets(settings) == [str(config)]


def test_json_in_the_environment_means_the_same(config: Path) -> None:
    settings = loaded(
        config,
        warehouse="s3a://lake",
        storage=json.dumps({"default": {"path-style": True}}),
        storage_secrets=json.dumps({"default": {"access-key-id": "key", "secret-access-key": SECRET}}),
    )

    default = read_places(settings)[0]["default"]

    assert (default.profile, default.secret) == (S3Profile(path_style=True), S3Secret("key", SECRET))


@pytest.mark.parametrize(
    ("variables", "trouble"),
    [
        ({"storage": "region=x"}, "write a table for each warehouse"),
        ({"storage": '{"default": "x"}'}, "write a table for each warehouse"),
        ({"storage": '{"default": {"regoin": "x"}}'}, "unknown field `regoin`"),
        ({"storage": '{"default": {"endpoint": "ftp://x"}}'}, "storage of the warehouse default"),
        ({"storage": '{"default": {"type": "gcs"}}'}, "needs another storage profile"),
        ({"storage_secrets": f'{{"default": "{SECRET}"}}'}, "storage_secrets from .* is 'a secret'"),
        ({"storage_secrets": f'{{"default": {{"account-key": "{SECRET}"}}}}'}, "are not those of s3"),
        ({"storage_secrets": f'{{"lab": {{"account-key": "{SECRET}"}}}}'}, "names the warehouse lab"),
        ({"s3_access_key_id": "key"}, "belong together"),
        ({"s3_secret_access_key": SECRET}, "belong together"),
        ({"allowed_locations": "gs://other"}, "needs another storage profile"),
        (
            {
                "storage_secrets": f'{{"default": {{"access-key-id": "k", "secret-access-key": "{SECRET}"}}}}',
                "config_defaults": f"s3.note={SECRET}",
            },
            "would tell clients a secret",
        ),
    ],
)
def test_storage_that_cannot_be_is_refused_without_showing_a_secret(
    config: Path, variables: dict[str, str], trouble: str
) -> None:
    with pytest.raises(SettingsError, match=trouble) as refused:
        check(loaded(config, warehouse="s3://lake", **variables))

    assert SECRET not in str(refused.value)
