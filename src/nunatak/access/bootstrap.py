"""The first administrator: a principal with every right, and the credential to act as it, in a file of its own."""

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
    """Another `nunatak init` was faster."""


@dataclass(frozen=True)
class Bootstrapped:
    """What the database had before: with `administered`, somebody holds SERVER_ADMIN; `admin_kept`, by our name."""

    administered: bool
    admin_kept: bool


async def look(store: Store) -> Bootstrapped:
    rows = await store.rows("load_principal", {"principal": ADMIN})
    return Bootstrapped(bool(await store.rows("find_administrator", {})), bool(rows))


async def bootstrap(
    store: Store, vault: Vault, file: Path, catalog: str, now_ms: int, *, new_secret: bool = False
) -> None:
    """Make the administrator, or with `new_secret` give it a new one and every right again, and write the file.

    The secret is in a file before the database knows it: an administrator whose secret nobody knows would be of no
    use. It gets the file's own name afterwards, so that one of two `init` that run at once never replaces, or removes,
    the secret of the one that won. AdministratorExists if another `init` won.
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
    except (Conflict, NotFound) as error:  # the database said no: this secret opens nothing
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
    """Write the secret beside `file`, under a name of its own, readable for its owner alone from the first byte on."""
    content = {
        "catalog": catalog,  # the secret is sent to a server of this database alone
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
