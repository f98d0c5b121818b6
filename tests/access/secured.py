"""A whole server with authentication on, in this process: principals with their grants in one line each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nunatak.access import administration, securables
from nunatak.access.administration import Actor
from nunatak.access.credentials import new_api_key
from nunatak.access.privileges import EVERYTHING
from nunatak.access.sessions import principal_grantee
from tests.api.local import LocalCatalog
from tests.api.wire import Answer

# A test asks as one caller, and on a fast machine more often than one may.
UNLIMITED = {"NUNATAK_RATE_LIMIT": "0", "NUNATAK_ADDRESS_RATE_LIMIT": "0"}


class SecuredCatalog(LocalCatalog):
    """As LocalCatalog; `call` is by the administrator, `call_as` by whoever is named."""

    def __init__(self, data: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(data, {"NUNATAK_AUTH": "embedded", **UNLIMITED, **(environment or {})})
        self.keys: dict[str, str] = {}
        self.principal("root", server="SERVER_ADMIN")

    def principal(self, name: str, **granted: str) -> str:
        """Make it, with an API key; `granted` maps securables (server, or warehouse__a__b for a path) to privileges."""
        store, vault = self.app.catalog.store, self.app.vault
        assert vault is not None
        key = new_api_key(vault)
        self.run(store.apply(administration.create_principal(self._actor(), name)))
        self.run(store.apply(administration.create_credential(self._actor(), name, key)))
        self.keys[name] = key.shown.reveal()
        for where, privileges in granted.items():
            self.grant(name, where, privileges)
        return name

    def grant(self, name: str, where: str, privileges: str) -> None:
        wanted = administration.parse_privileges(privileges.split(","))
        changes = administration.grant(
            self._actor(), int(EVERYTHING), principal_grantee(name), securable(where), wanted
        )
        self.run(self.app.catalog.store.apply(changes))

    def revoke(self, name: str, where: str, privileges: str) -> None:
        wanted = administration.parse_privileges(privileges.split(","))
        store = self.app.catalog.store
        changes = self.run(
            administration.revoke(
                store, self._actor(), int(EVERYTHING), principal_grantee(name), securable(where), wanted
            )
        )
        self.run(store.apply(changes))

    def headers(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[name]}"}

    def call_as(
        self, name: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return super().call(method, path, body, {**self.headers(name), **(headers or {})})

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        return self.call_as("root", method, path, body, headers)

    def _actor(self) -> Actor:
        return Actor("root", self.app.catalog.now_ms())


def securable(where: str) -> str:
    """`server`, `default`, `default__sales`, `default__sales____orders`: four underscores before a table."""
    if where == "server":
        return securables.SERVER
    container, _, entry = where.partition("____")
    warehouse, *levels = container.split("__")
    if entry:
        return securables.entry(warehouse, tuple(levels), entry)
    return securables.namespace(warehouse, tuple(levels))
