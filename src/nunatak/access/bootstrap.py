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

ADMIN_FILE = "admin.json"
ADMIN = "admin"
NOTE = "made by `nunatak init`"


@dataclass(frozen=True)
class Bootstrapped:
    """What the database had before: with `administered`, somebody holds SERVER_ADMIN; `admin_kept`, by our name."""

    administered: bool
    admin_kept: bool


async def look(store: Store) -> Bootstrapped:
    rows = await store.rows("load_principal", {"principal": ADMIN})
    return Bootstrapped(bool(await store.rows("find_administrator", {})), bool(rows))


async def bootstrap(store: Store, vault: Vault, file: Path, now_ms: int) -> None:
    """Make the administrator, or give it a new secret and every right again, and write the file.

    The file comes first: an administrator whose secret nobody knows would be of no use.
    """
    actor = Actor("nunatak init", now_ms)
    before = await look(store)
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
    write_admin_file(file, credential)
    try:
        await store.apply(changes)
    except BaseException:
        os.unlink(file)  # it opens nothing
        raise


def write_admin_file(file: Path, credential: NewCredential) -> None:
    """Readable for its owner alone, from the first byte on; a crash leaves the old file or the new one."""
    content = {"principal": ADMIN, "client-id": credential.credential_id, "client-secret": credential.shown.reveal()}
    new = Path(f"{file}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(json.dumps(content, indent=2) + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
