"""The Authorizer that evaluates Cedar policies in this process, from one file that is read again when it changes."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nunatak.access.external import ANSWERS, Undecided, intersect_rights, principals_asked_about, sum_of
from nunatak.access.securables import SERVER, chain, format_securable, parts
from nunatak.access.sessions import Session
from nunatak.errors import ServiceUnavailable
from nunatak.settings import Settings, SettingsError

try:
    import cedarpy
except ModuleNotFoundError:  # pragma: no cover - the extra `cedar` brings it
    cedarpy = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

SCHEMA = Path(__file__).with_name("nunatak.cedarschema")
ACTIONS = tuple(ANSWERS)
Entity = dict[str, Any]
FileVersion = tuple[int, int, int]
MAX_DECIDED = 100_000  # some 50 MB; beyond that the cache is cleared


class BrokenPolicies(Exception):
    """The file holds no usable policies; the message names the first error."""


def open_cedar(settings: Settings) -> "Cedar":
    """Returns the authorizer with the policies of `cedar_policies`; raises SettingsError if one is invalid."""
    if cedarpy is None:
        raise SettingsError("authorizer cedar needs the package cedarpy: pip install 'nunatak[cedar]'")
    if not settings.cedar_policies:
        raise SettingsError("authorizer cedar needs cedar_policies, the file with the policies")
    path = Path(settings.cedar_policies)
    try:
        return Cedar(path)
    except BrokenPolicies as error:
        raise SettingsError(f"cedar_policies cannot be used: {path}: {error}") from error


class Cedar:
    """The Authorizer that evaluates the policies of a file."""

    grants_decide = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema = cedarpy.Schema.from_str(SCHEMA.read_text("utf-8"))
        # The bundles; the entities of the principal and the securable are added for each query.
        self._actions = cedarpy.Entities.from_json_str("[]", self._schema)
        self._version = _version_of(path)
        self._policies = self._read()
        self._decided: dict[object, int] = {}

    async def rights(self, session: Session, securables: Sequence[str]) -> list[int]:
        self._follow_file()
        held = []
        for number, securable in enumerate(securables):
            if number:
                await asyncio.sleep(0)  # a long list must not block other requests
            held.append(self._decision(session, securable))
        return held

    async def sees_inside(self, session: Session, container: str) -> bool:
        """Returns False: called only where there are no rights, and visibility would have come with them."""
        return False

    async def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _decision(self, session: Session, securable: str) -> int:
        """Returns a decision, cached until the policies change, since it depends only on them and the query."""
        question = (session.principal, session.roles, session.grantees, session.method, securable)
        decision = self._decided.get(question)
        if decision is None:
            if len(self._decided) >= MAX_DECIDED:
                self._decided.clear()
            decision = self._decided[question] = self._decide(session, securable)
        return decision

    def _decide(self, session: Session, securable: str) -> int:
        try:
            allowed = [self._evaluate(session, principal, securable) for principal in principals_asked_about(session)]
        except Undecided as error:
            log.error("Cedar failed to decide about %s: %s; answered 503", format_securable(securable), error)
            raise ServiceUnavailable(
                "Cedar returned no decision for this request",
                hint="Nothing was done. The server's log has the reason.",
            ) from error
        (held,) = intersect_rights([[sum_of(actions)] for actions in allowed])
        return held

    def _evaluate(self, session: Session, principal: str, securable: str) -> list[str]:
        entities = [*_principal_entities(principal, session), *_resource_entities(securable)]
        asked = {"principal": _uid("Principal", principal), "resource": _uid_of(securable)}
        requests = [{**asked, "action": _uid("Action", action)} for action in ACTIONS]
        try:
            known = self._actions.with_added_json_str(msgspec.json.encode(entities).decode())
            results = cedarpy.is_authorized_batch(requests, self._policies, known)
        except ValueError as error:
            raise Undecided(str(error)) from error
        # Cedar skips a policy that fails, even one that forbids, so the result of the others is not a decision.
        failed = [error for result in results for error in result.diagnostics.errors]
        if failed or len(results) != len(ACTIONS):
            raise Undecided(failed[0] if failed else f"{len(results)} results for {len(ACTIONS)} actions")
        return [action for action, result in zip(ACTIONS, results, strict=True) if result.allowed]

    def _follow_file(self) -> None:
        """Reads the policies again if the file changed; an invalid file changes nothing."""
        version = _version_of(self._path)
        if version == self._version:
            return
        # Set even if reading fails, so that an invalid file is reported once and not for every request.
        self._version = version
        try:
            self._policies = self._read()
        except BrokenPolicies as error:
            log.error("%s cannot be used, the policies before it stay in force: %s", self._path, error)
        else:
            self._decided.clear()
            log.warning("%s changed: %d policies are in force", self._path, len(self._policies))

    def _read(self) -> "cedarpy.PolicySet":
        try:
            text = self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BrokenPolicies(str(error)) from error
        checked = cedarpy.validate_policies(text, self._schema)
        if not checked.validation_passed:
            raise BrokenPolicies("; ".join(str(error) for error in checked.errors[:3]))
        policies = cedarpy.PolicySet.from_str(text)
        if policies.templates():
            raise BrokenPolicies(
                "it contains a policy template, which never applies; name the principal and the resource"
            )
        return policies


def _version_of(path: Path) -> FileVersion | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _principal_entities(principal: str, session: Session) -> Iterator[Entity]:
    roles = [_uid("Role", role) for role in dict.fromkeys(session.roles)]
    yield from (_entity(role, []) for role in roles)
    yield _entity(_uid("Principal", principal), roles, name=principal, method=session.method)


def _resource_entities(securable: str) -> Iterator[Entity]:
    """Yields the securable and its ancestors, outermost first, each the parent of the next."""
    container: list[Entity] = []
    for each in chain(securable):
        uid = _uid_of(each)
        yield _entity(uid, container, **_attributes(each))
        container = [uid]


def _attributes(securable: str) -> dict[str, str]:
    warehouse, levels, name = parts(securable)
    if securable == SERVER:
        return {"name": "server"}
    if not levels:
        return {"name": warehouse}
    return {"name": levels[-1] if name is None else name, "warehouse": warehouse}


def _uid_of(securable: str) -> Entity:
    kind, _, path = format_securable(securable).partition(":")
    return _uid(kind.capitalize(), path or kind)


def _uid(kind: str, name: str) -> Entity:
    return {"type": f"Nunatak::{kind}", "id": name}


def _entity(uid: Entity, parents: Sequence[Entity], **attributes: str) -> Entity:
    return {"uid": uid, "attrs": attributes, "parents": list(parents)}
