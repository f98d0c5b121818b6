"""Options that describe the store and the rules of a warehouse, and the JSON of the management API made from them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import click

from nunatak.cli.main import CommandRefused

Json = dict[str, Any]
Command = Callable[..., Any]

TYPES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "abfss": "adls", "abfs": "adls", "gs": "gcs"}  # by scheme
PROFILE_FIELDS = (
    *("region", "endpoint", "path_style", "sts_endpoint", "role_arn", "external_id", "static_keys"),
    *("tenant_id", "hierarchical", "token_endpoint", "project_id", "session_seconds"),
)


def profile_options(command: Command) -> Command:
    """Adds an option for each field of a storage profile; those that are not given are None."""
    for option in reversed(
        (
            click.option("--region", help="S3: the region of the bucket."),
            click.option("--endpoint", help="Address of a store that is not the cloud's own."),
            click.option(
                "--path-style/--virtual-host", default=None, help="S3: the bucket in the path, or in the host."
            ),
            click.option("--sts-endpoint", help="S3: address of the token service, if it is not the endpoint."),
            click.option("--role-arn", help="S3: role that is assumed to vend credentials."),
            click.option("--external-id", help="S3: external id that the role asks for."),
            click.option("--static-keys/--no-static-keys", default=None, help="S3: hand clients the keys themselves."),
            click.option("--tenant-id", help="ADLS: tenant of Entra ID."),
            click.option("--hierarchical/--flat", default=None, help="ADLS: whether the account has directories."),
            click.option("--token-endpoint", help="GCS: address of the token exchange, if it is not Google's."),
            click.option("--project-id", help="GCS: project of the bucket."),
            click.option("--session-seconds", type=int, help="Life of vended credentials."),
        )
    ):
        command = option(command)
    return command


def rule_options(command: Command) -> Command:
    """Adds options for what a warehouse permits its tables; those that are not given are None or empty."""
    for option in reversed(
        (
            click.option("--further-location", multiple=True, help="Where tables may lie besides; may be repeated."),
            click.option("--format-version", type=int, multiple=True, help="Allowed for tables; may be repeated."),
            click.option("--default-format-version", type=int, help="Of new tables that ask for none."),
            click.option("--layout", type=click.Choice(["uuid", "plain"]), help="Folders of new tables."),
            click.option("--read-only/--writable", default=None, help="Whether all changes are refused."),
            click.option(
                "--must-lie-in", metavar="REGION", help="Where the data must lie; the profile may name no other."
            ),
        )
    ):
        command = option(command)
    return command


def rules_given(given: Mapping[str, Any]) -> Json:
    """Returns the rules that were given, under the names of the API."""
    found: Json = {}
    if given["further_location"]:
        found["further-locations"] = list(given["further_location"])
    if given["format_version"]:
        found["format-versions"] = list(given["format_version"])
    for option, field in (
        ("default_format_version", "default-format-version"),
        ("layout", "layout"),
        ("read_only", "read-only"),
        ("must_lie_in", "region"),
    ):
        if given[option] is not None:
            found[field] = given[option]
    return found


def described_profile(given: Mapping[str, Any], before: Json | None, location: str | None) -> Json | None:
    """Returns the storage profile: that of before with what was given; None if nothing was, or for a local folder."""
    fields = {name.replace("_", "-"): given[name] for name in PROFILE_FIELDS if given[name] is not None}
    kind = TYPES.get((location or "").partition("://")[0].lower())
    if before is not None:
        return {**before, **fields} if fields else None
    if kind is None and fields:
        raise CommandRefused(f"--{next(iter(fields))} needs a location such as s3://bucket/folder")
    return None if kind is None else {"type": kind, **fields}


def read_secret(file: TextIO | None, profile: Json | None) -> Json | None:
    """Reads the keys of a store from a file of JSON; a key file of Google is taken as it is."""
    if file is None:
        return None
    text = file.read()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandRefused(f"{file.name} is not JSON", hint=SECRET_HINT) from error
    if not isinstance(found, dict):
        raise CommandRefused(f"{file.name} is not a JSON object", hint=SECRET_HINT)
    if found.get("type") == "service_account":
        return {"type": "gcs", "service-account-key": text}
    return {"type": (profile or {}).get("type", "s3"), **found}


SECRET_HINT = 'Write {"access-key-id": "…", "secret-access-key": "…"} for S3; see docs/how-to/manage-warehouses.md.'
