"""Creates the first administrator: a principal with SERVER_ADMIN, and its credential in a file of its own."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from nunatak.access import administration, securables
from nunatak.access.administration import Actor
from nunatak.access.credentials import CLIENT, NewCredential, new_client
from nunatak.access.privileges import EVERYTHING, Privilege
from nunatak.access.sessions import principal_grantee
from nunatak.access.vault import Vault
from nunatak.database.records import Change
from nunatak.database.store import Store
from nunatak.errors import Conflict, NotFound, OutcomeUnknown
from nunatak.settings import SettingsError

ADMIN_FILE = "admin.json"
ADMIN = "admin"
NOTE = "made by `nunatak init`"


class AdministratorExists(SettingsError):
    """Another `nunatak init` was first."""


@dataclass(frozen=True)
class Bootstrapped:
    """Whether the database had an administrator (`administered`), and a principal named `admin` (`admin_kept`)."""

    administered: bool
    admin_kept: bool


async def look(store: Store) -> Bootstrapped:
    rows = await store.rows("load_principal", {"principal": ADMIN})
    return Bootstrapped(bool(await store.rows("find_administrator", {})), bool(rows))


async def bootstrap(
    store: Store, vault: Vault, file: Path, catalog: str, now_ms: int, *, new_secret: bool = False
) -> None:
    """Creates the administrator, or with `new_secret` gives it a new secret and every privilege again; writes the file.

    The secret is in a file before it is in the database: an administrator whose secret is lost would be useless. The
    file gets its final name afterwards, so that of two concurrent `init` the loser never replaces or removes the
    winner's secret. Raises AdministratorExists if another `init` won.
    """
    actor = Actor("nunatak init", now_ms)
    before = await look(store)
    if before.administered and not new_secret:
        raise AdministratorExists("the catalog has an administrator")
    credential = new_client(vault)
    changes: list[Change] = []
    if before.admin_kept:
        for old in await administration.list_credentials(store, ADMIN):
            if old.kind == CLIENT:
                changes += administration.drop_credential(actor, ADMIN, old.credential_id)
        changes += await administration.update_principal(store, actor, ADMIN, disabled=False)
    else:
        changes += administration.create_principal(actor, ADMIN, NOTE)
    changes += administration.grant(
        actor, int(EVERYTHING), principal_grantee(ADMIN), securables.SERVER, Privilege.SERVER_ADMIN
    )
    changes += administration.create_credential(actor, ADMIN, credential, note=NOTE)
    new = write_admin_file(file, catalog, credential)
    try:
        await store.apply(changes)
    except (Conflict, NotFound) as error:  # rejected by the database: this secret is not valid
        new.unlink()
        raise AdministratorExists("another `nunatak init` made or changed the administrator at this moment") from error
    except OutcomeUnknown as error:
        raise SettingsError(
            f"whether the administrator was made is not known; if so, its secret is in {new}"
        ) from error
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    new.replace(file)


def write_admin_file(file: Path, catalog: str, credential: NewCredential) -> Path:
    """Writes the secret to a new file beside `file`, readable by its owner only from the first byte on."""
    content = {
        "catalog": catalog,  # clients send the secret only to a server of this database
        "principal": ADMIN,
        "client-id": credential.credential_id,
        "client-secret": credential.shown.reveal(),
    }
    new = Path(f"{file}.{credential.credential_id}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(json.dumps(content, indent=2) + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    return new
