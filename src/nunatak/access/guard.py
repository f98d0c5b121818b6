"""Authenticates and authorizes callers, with a cache that is valid until any privilege changes.

Every cached session and right belongs to one policy version. Each read of a pointer returns that version, so a load or
a commit by a cached session costs nothing more, and a revoked privilege is gone with the next request, on every server.
A missing privilege is never cached but queried again: a new grant counts at once.
"""

from collections.abc import Callable, Sequence

from nunatak.access.decisions import Authorizer, PolicyChanged
from nunatak.access.grants import Grants
from nunatak.access.known_sessions import Known, KnownSessions, digest_of
from nunatak.access.privileges import Privilege
from nunatak.access.sessions import Authenticator, Proof, Session
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated

__all__ = ["Guard", "Known"]

NO_PROOF = "No credentials were sent"
# Sent by PyIceberg and similar clients without credentials; another authenticator may still identify the caller.
NOTHING_SENT = (b"Bearer None", b"Bearer null", b"Bearer ", b"Bearer")
NOTHING_SENT_HINT = (
    "The client sent `Authorization: Bearer None`, as PyIceberg does without any: "
    "set `credential` to <client id>:<secret>, or `token` to an API key."
)
HINT = "Send `Authorization: Bearer <token>`; clients take a token or a client id and secret in their configuration."


class Guard:
    """One per process; with `auth` none there is no guard, and every caller may do everything."""

    def __init__(
        self,
        store: Store,
        authorizer: Authorizer,
        authenticators: Sequence[Authenticator],
        now_ms: Callable[[], int],
    ) -> None:
        self.authorizer = authorizer
        self._store = store
        self._authenticators = authenticators
        self.sessions = KnownSessions(now_ms)

    def known(self, authorization: bytes | None) -> Known | None:
        """Returns the unexpired session that this header authenticated; the caller must check its policy version."""
        return None if authorization is None else self.sessions.find(digest_of(authorization))

    def forget(self) -> None:
        self.sessions.clear()

    async def policy_version(self) -> int:
        rows = await self._store.rows("policy_version", {})
        version: int = rows[0][0]
        return version

    async def identify(self, proof: Proof) -> Known:
        """Returns the caller's session; raises NotAuthenticated."""
        authorization = proof.headers.get(b"authorization")
        known = self.known(authorization)
        if known is not None:
            return known
        # Read the version first: a change made while the proof is checked then outdates the session.
        version = await self.policy_version()
        session = await self._authenticate(proof)
        known = Known(session, version)
        if session.cached and authorization is not None:
            self.sessions.add(digest_of(authorization), known)
        return known

    async def _authenticate(self, proof: Proof) -> Session:
        for authenticator in self._authenticators:
            session = await authenticator.authenticate(proof)
            if session is not None:
                return session
        authorization = proof.headers.get(b"authorization")
        if authorization in NOTHING_SENT:
            raise NotAuthenticated(NO_PROOF, hint=NOTHING_SENT_HINT)
        if authorization is not None:
            raise NotAuthenticated("This server does not accept this kind of credentials", hint=HINT)
        raise NotAuthenticated(NO_PROOF, hint=HINT)

    async def ask(self, known: Known, wanted: Sequence[str]) -> list[int]:
        """Returns the current rights on each securable; raises PolicyChanged if the session is older than those."""
        if isinstance(self.authorizer, Grants):
            version, found = await self.authorizer.versioned_rights(known.session, wanted)
            if version != known.version:
                self.forget()
                raise PolicyChanged
            known.remember(wanted, found)
        else:  # external policies may change without notice: nothing is cached
            found = await self.authorizer.rights(known.session, wanted)
        return [held | Privilege.CONFIG_READ for held in found]

    async def sees_inside(self, known: Known, container: str) -> bool:
        return await self.authorizer.sees_inside(known.session, container)
