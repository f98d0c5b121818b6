"""Session policies of S3: whether one permits a request, as AWS reads it and as S3-compatible stores read it.

Written from the IAM documents: Allow and Deny, globs in actions and resources, policy variables, string conditions.
Anything else in a policy is an error, so that a policy never passes by something that is not understood here.
"""

import enum
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

MAX_SESSION_POLICY_CHARACTERS = 2048
# What STS takes as the text of a session policy.
_SESSION_POLICY_TEXT = re.compile(r"[\t\n\r -\xff]+")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_LITERAL_VARIABLES = {"*", "?", "$"}


class Dialect(enum.Enum):
    """How a store reads `${*}`, `${?}` and `${$}`."""

    AWS = "policy variables: the character itself"
    LITERAL = "plain text: * and ? stay wildcards"


class InvalidPolicy(Exception):
    """STS would refuse the policy, or it uses something that no session policy of ours may use."""


@dataclass(frozen=True)
class Request:
    """One action on a bucket, or on an object of it; `context` holds condition keys in lower case."""

    action: str
    bucket: str
    key: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        return f"arn:aws:s3:::{self.bucket}" if self.key is None else f"arn:aws:s3:::{self.bucket}/{self.key}"


def list_objects(bucket: str, prefix: str | None) -> Request:
    """A list; without a prefix the condition key is absent, not empty."""
    return Request("s3:ListBucket", bucket, None, {} if prefix is None else {"s3:prefix": prefix})


class SessionPolicy:
    """A checked policy in one dialect."""

    def __init__(self, document: Mapping[str, Any], dialect: Dialect) -> None:
        _check_text(document)
        if not set(document) <= {"Version", "Id", "Statement"}:
            raise InvalidPolicy(f"unknown fields in {sorted(document)}")
        # Before 2012-10-17 there were no policy variables; without a version the older one counts.
        self._variables = dialect is Dialect.AWS and document.get("Version") == "2012-10-17"
        if document.get("Version") not in ("2012-10-17", "2008-10-17", None):
            raise InvalidPolicy(f"unknown version {document.get('Version')!r}")
        statements = _as_list(document.get("Statement"))
        if not statements:
            raise InvalidPolicy("a policy needs a statement")
        self._allow = [_Statement(each, self._variables) for each in statements if each.get("Effect") == "Allow"]
        self._deny = [_Statement(each, self._variables) for each in statements if each.get("Effect") == "Deny"]
        if len(self._allow) + len(self._deny) != len(statements):
            raise InvalidPolicy("every statement has the effect Allow or Deny")

    def permits(self, request: Request) -> bool:
        """An explicit Deny decides; without an Allow nothing is permitted."""
        if any(statement.matches(request) for statement in self._deny):
            return False
        return any(statement.matches(request) for statement in self._allow)


def _check_text(document: Mapping[str, Any]) -> None:
    text = json.dumps(document, separators=(",", ":"))
    if len(text) > MAX_SESSION_POLICY_CHARACTERS:
        raise InvalidPolicy(f"{len(text)} characters; STS takes {MAX_SESSION_POLICY_CHARACTERS}")
    if not _SESSION_POLICY_TEXT.fullmatch(text):
        raise InvalidPolicy("the text holds a character that STS refuses")


class _Statement:
    def __init__(self, document: Mapping[str, Any], variables: bool) -> None:
        unknown = set(document) - {"Sid", "Effect", "Action", "Resource", "Condition"}
        if unknown:
            raise InvalidPolicy(f"a session policy has no {sorted(unknown)} here")
        self._actions = [_action_glob(each) for each in _texts(document, "Action")]
        self._resources = [_resource_glob(each, variables) for each in _texts(document, "Resource")]
        self._conditions = [
            _Condition(operator, key, _as_list(values), variables)
            for operator, block in document.get("Condition", {}).items()
            for key, values in block.items()
        ]

    def matches(self, request: Request) -> bool:
        return (
            any(action.fullmatch(request.action) for action in self._actions)
            and any(resource(request.arn) for resource in self._resources)
            and all(condition.holds(request.context) for condition in self._conditions)
        )


def _texts(document: Mapping[str, Any], name: str) -> list[str]:
    values = _as_list(document.get(name))
    if not values or not all(isinstance(value, str) and value for value in values):
        raise InvalidPolicy(f"a statement needs {name}")
    return values


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


# --- globs and variables ---


@lru_cache(maxsize=4096)
def _action_glob(text: str) -> re.Pattern[str]:
    """Actions are compared without regard to case."""
    if text != "*" and not re.fullmatch(r"[a-z0-9-]+:[A-Za-z0-9*?]+", text):
        raise InvalidPolicy(f"no action: {text!r}")
    return re.compile("".join(_glob_character(each) for each in text), re.IGNORECASE)


def _resource_glob(text: str, variables: bool) -> Callable[[str], bool]:
    """An ARN is compared part by part, so that a wildcard does not reach over a colon; the last part holds the rest."""
    if text == "*":
        return lambda _: True
    parts = text.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn":
        raise InvalidPolicy(f"no ARN: {text!r}")
    patterns = [re.compile(_expand(part, variables, _glob_character), re.DOTALL) for part in parts]

    def matches(arn: str) -> bool:
        pairs = zip(patterns, arn.split(":", 5), strict=True)
        return all(pattern.fullmatch(part) for pattern, part in pairs)

    return matches


def _glob_character(character: str) -> str:
    return {"*": ".*", "?": "."}.get(character) or re.escape(character)


def _expand(text: str, variables: bool, character: Callable[[str], str]) -> str:
    """Returns a regular expression; `character` says what one outside of a variable stands for."""
    parts, at = [], 0
    for found in _VARIABLE.finditer(text) if variables else ():
        if found[1] not in _LITERAL_VARIABLES:
            raise InvalidPolicy(f"the variable {found[0]} depends on the caller; a table's policy must not")
        parts += [*map(character, text[at : found.start()]), re.escape(found[1])]
        at = found.end()
    rest = text[at:]
    if variables and "${" in rest:
        raise InvalidPolicy(f"a variable without an end: {rest!r}")
    return "".join([*parts, *map(character, rest)])


class _Condition:
    """One key of one operator: any of its values may match; a negated operator wants none to."""

    def __init__(self, operator: str, key: str, values: Sequence[Any], variables: bool) -> None:
        self._if_exists = operator.endswith("IfExists")
        base = operator.removesuffix("IfExists")
        self._negated = base in ("StringNotEquals", "StringNotLike")
        kinds = {"StringEquals", "StringLike", "StringNotEquals", "StringNotLike"}
        if base not in kinds or not values or not all(isinstance(value, str) for value in values):
            raise InvalidPolicy(f"condition not understood: {operator} {key} {values!r}")
        character = _glob_character if base.endswith("Like") else re.escape
        self._key = key.lower()
        self._patterns = [re.compile(_expand(value, variables, character), re.DOTALL) for value in values]

    def holds(self, context: Mapping[str, str]) -> bool:
        value = context.get(self._key)
        if value is None:
            return self._negated or self._if_exists
        found = any(pattern.fullmatch(value) for pattern in self._patterns)
        return found is not self._negated
