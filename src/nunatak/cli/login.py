"""Finds the login of a command: the environment, or the administrator's file for the catalog that it belongs to."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nunatak.access.bootstrap import ADMIN_FILE
from nunatak.address_file import find_address, list_addresses
from nunatak.client import ClientCredential
from nunatak.settings import SettingsError, load

HOW_TO_LOG_IN = "Set NUNATAK_CREDENTIAL to CLIENT-ID:CLIENT-SECRET, or NUNATAK_TOKEN to an API key; "
ON_ITS_MACHINE = "on the catalog's own machine, run this in its folder, or set NUNATAK_DATA to its data folder."


@dataclass(frozen=True)
class CommandLogin:
    """A token, a credential or neither, for the HTTP client and for Spark."""

    token: str | None = field(default=None, repr=False)
    credential: ClientCredential | None = None

    @property
    def credential_text(self) -> str | None:
        """The credential as `id:secret`, the form of Iceberg's clients."""
        return None if self.credential is None else f"{self.credential.client_id}:{self.credential.secret}"


def find_login(uri: str, environment: Mapping[str, str]) -> CommandLogin:
    """Returns NUNATAK_TOKEN, else NUNATAK_CREDENTIAL, else the administrator's file if `uri` is of its own catalog.

    The environment applies to any catalog that the user names. The file's secret is sent only to the server that runs
    on this data folder and the file's database, never to another server on this machine.
    """
    token, credential = environment.get("NUNATAK_TOKEN"), environment.get("NUNATAK_CREDENTIAL")
    if token:
        return CommandLogin(token=token)
    if credential:
        client_id, colon, secret = credential.partition(":")
        if not colon:
            raise SettingsError("NUNATAK_CREDENTIAL has no colon: write CLIENT-ID:CLIENT-SECRET")
        return CommandLogin(credential=ClientCredential(client_id, secret))
    data = _data_folder(environment)
    admin = None if data is None else _read_admin_file(data)
    if data is None or admin is None:
        return CommandLogin()
    address = find_address(data, uri)
    if address is None or admin.get("catalog") != address.catalog or not address.answers(uri):
        return CommandLogin()
    return CommandLogin(credential=ClientCredential(admin["client-id"], admin["client-secret"]))


def has_admin_file(environment: Mapping[str, str]) -> bool:
    """Whether the data folder holds an administrator's login, for any address."""
    data = _data_folder(environment)
    return data is not None and _read_admin_file(data) is not None


def login_hint(environment: Mapping[str, str]) -> str:
    """Returns how to log in, with the address that the administrator's file is for, in case the URI was mistyped."""
    data = _data_folder(environment)
    if data is None or _read_admin_file(data) is None:
        return HOW_TO_LOG_IN + ON_ITS_MACHINE
    served = list_addresses(data)
    where = f"only at {', '.join(each.uri for each in served)}" if served else "while that server runs"
    how = f": {export_line(served[0].uri)}" if len(served) == 1 else "."
    return f"{HOW_TO_LOG_IN}{data / ADMIN_FILE} is sent to the server of that folder, {where}{how}"


def elsewhere_hint(uri: str, environment: Mapping[str, str]) -> str:
    """Returns where the server of the data folder listens, for a command that failed at `uri`; empty if none runs."""
    data = _data_folder(environment)
    served = [] if data is None else [each for each in list_addresses(data) if reachable(each.uri) != uri.rstrip("/")]
    return (
        "" if data is None or not served else f"; the server of {data} listens elsewhere: {export_line(served[0].uri)}"
    )


def export_line(uri: str) -> str:
    """Returns the shell line that makes commands use this server."""
    return f"export NUNATAK_URI={shlex.quote(reachable(uri))}"


def reachable(uri: str) -> str:
    """Returns the loopback URI for a server that listens on every address."""
    return uri.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _data_folder(environment: Mapping[str, str]) -> Path | None:
    try:
        return load({}, environment).data
    except SettingsError:
        return None


def _read_admin_file(data: Path) -> dict[str, str] | None:
    try:
        admin = json.loads((data / ADMIN_FILE).read_text("utf-8"))
    except (OSError, ValueError):  # missing, unreadable or not JSON
        return None
    required = ("client-id", "client-secret")
    return admin if isinstance(admin, dict) and all(isinstance(admin.get(key), str) for key in required) else None
