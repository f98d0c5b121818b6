"""Credential access boundaries of Google Cloud Storage: whether one permits an operation.

Written from Google's documents on downscoped tokens and from the CEL specification, for the part of CEL that conditions
on storage use: `resource.name`, `api.getAttribute`, startsWith, endsWith, ==, !=, !, &&, || and parentheses.
Anything else is an error, as it is for Google's token exchange.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIST_PREFIX = "storage.googleapis.com/objectListPrefix"
MOST_RULES = 10
_GET, _LIST = "storage.objects.get", "storage.objects.list"
_CREATE, _DELETE, _UPDATE = "storage.objects.create", "storage.objects.delete", "storage.objects.update"
_BUCKET = "storage.buckets.get"
# The roles of Cloud Storage and those of their permissions that concern data.
ROLES = {
    "roles/storage.objectViewer": {_GET, _LIST},
    "roles/storage.objectCreator": {_CREATE},
    "roles/storage.objectUser": {_GET, _LIST, _CREATE, _DELETE, _UPDATE},
    "roles/storage.objectAdmin": {_GET, _LIST, _CREATE, _DELETE, _UPDATE},
    "roles/storage.legacyObjectReader": {_GET},
    "roles/storage.legacyObjectOwner": {_GET, _UPDATE},
    "roles/storage.legacyBucketReader": {_BUCKET, _LIST},
    "roles/storage.legacyBucketWriter": {_BUCKET, _LIST, _CREATE, _DELETE},
    "roles/storage.legacyBucketOwner": {_BUCKET, _LIST, _CREATE, _DELETE},
    "roles/storage.admin": {_BUCKET, _GET, _LIST, _CREATE, _DELETE, _UPDATE},
}


class InvalidBoundary(Exception):
    """The token exchange would refuse the document."""


@dataclass(frozen=True)
class Operation:
    """One permission on an object, or on a bucket if `name` is None; a list has a prefix."""

    permission: str
    bucket: str
    name: str | None = None
    list_prefix: str = ""

    @property
    def resource(self) -> str:
        bucket = f"projects/_/buckets/{self.bucket}"
        return bucket if self.name is None else f"{bucket}/objects/{self.name}"


def get(bucket: str, name: str) -> Operation:
    return Operation(_GET, bucket, name)


def create(bucket: str, name: str) -> Operation:
    return Operation(_CREATE, bucket, name)


def delete(bucket: str, name: str) -> Operation:
    return Operation(_DELETE, bucket, name)


def update(bucket: str, name: str) -> Operation:
    return Operation(_UPDATE, bucket, name)


def list_objects(bucket: str, prefix: str) -> Operation:
    return Operation(_LIST, bucket, None, prefix)


def get_bucket(bucket: str) -> Operation:
    return Operation(_BUCKET, bucket)


Condition = Callable[[Operation], bool]


@dataclass(frozen=True)
class _Rule:
    bucket: str
    permissions: frozenset[str]
    condition: Condition


class Boundary:
    """A parsed document; raises InvalidBoundary for one that the token exchange would refuse."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        if set(document) != {"accessBoundary"} or set(document["accessBoundary"]) != {"accessBoundaryRules"}:
            raise InvalidBoundary("expected accessBoundary.accessBoundaryRules and nothing else")
        rules = document["accessBoundary"]["accessBoundaryRules"]
        if not isinstance(rules, list) or not 1 <= len(rules) <= MOST_RULES:
            raise InvalidBoundary(f"a boundary has 1 to {MOST_RULES} rules")
        self._rules = [_parse_rule(rule) for rule in rules]

    def permits(self, operation: Operation) -> bool:
        return any(
            rule.bucket == operation.bucket and operation.permission in rule.permissions and rule.condition(operation)
            for rule in self._rules
        )


def _parse_rule(rule: Mapping[str, Any]) -> _Rule:
    if not set(rule) <= {"availableResource", "availablePermissions", "availabilityCondition"}:
        raise InvalidBoundary(f"unknown fields in {sorted(rule)}")
    bucket = re.fullmatch(r"//storage\.googleapis\.com/projects/_/buckets/([^/]+)", rule.get("availableResource", ""))
    if bucket is None:
        raise InvalidBoundary(f"not a bucket: {rule.get('availableResource')!r}")
    permissions: set[str] = set()
    for each in rule.get("availablePermissions", ()):
        if not each.startswith("inRole:") or each.removeprefix("inRole:") not in ROLES:
            raise InvalidBoundary(f"not a role of Cloud Storage: {each!r}")
        permissions |= ROLES[each.removeprefix("inRole:")]
    if not permissions:
        raise InvalidBoundary("a rule needs availablePermissions")
    condition = rule.get("availabilityCondition")
    if condition is None:
        return _Rule(bucket[1], frozenset(permissions), lambda _: True)
    if not set(condition) <= {"expression", "title", "description"}:
        raise InvalidBoundary(f"unknown fields in {sorted(condition)}")
    return _Rule(bucket[1], frozenset(permissions), parse_condition(condition["expression"]))


# --- CEL ---

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<raw>[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\r\n]*"|'[^'\r\n]*'))
    | (?P<string>\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol>\|\||&&|==|!=|[().,!])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_METHODS: dict[str, Callable[[str, str], bool]] = {"startsWith": str.startswith, "endsWith": str.endswith}
_Text = Callable[[Operation], str]


def parse_condition(expression: str) -> Condition:
    """Returns the condition as a function; raises InvalidBoundary for anything but the known part of CEL."""
    parser = _Parser(_tokens(expression))
    condition = parser.either()
    parser.end()
    return condition


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, at, end = [], 0, len(expression.rstrip())
    while at < end:
        token = _TOKEN.match(expression, at)
        if token is None:
            raise InvalidBoundary(f"not understood at {at}: {expression[at : at + 40]!r}")
        assert token.lastgroup is not None
        found.append((token.lastgroup.replace("raw", "string"), token[token.lastgroup]))
        at = token.end()
    return found


def _literal(token: str) -> str:
    raw = token[0] in "rR"
    quoted = token[1:] if raw else token
    size = 3 if quoted[:3] in ('"""', "'''") else 1
    text = quoted[size:-size]
    return text if raw else _unescape(text)


def _unescape(text: str) -> str:
    parts, at = [], 0
    while (slash := text.find("\\", at)) >= 0:
        escape = _ESCAPE.match(text, slash)
        if escape is None:
            raise InvalidBoundary(f"no escape of CEL: {text[slash : slash + 4]!r}")
        parts += [text[at:slash], _character(escape)]
        at = escape.end()
    return "".join([*parts, text[at:]])


def _character(escape: re.Match[str]) -> str:
    simple, hexadecimal, short, long, octal = escape.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise InvalidBoundary(f"no code point: {escape[0]}")
    return chr(code)


class _Parser:
    """Recursive descent: || binds weakest, then &&, then !."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens = list(tokens)
        self._at = 0

    def either(self) -> Condition:
        parts = [self._both()]
        while self._accept("||"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda operation: any(part(operation) for part in parts)

    def end(self) -> None:
        if self._at != len(self._tokens):
            raise InvalidBoundary(f"unexpected {self._tokens[self._at][1]!r}")

    def _both(self) -> Condition:
        parts = [self._unary()]
        while self._accept("&&"):
            parts.append(self._unary())
        return parts[0] if len(parts) == 1 else lambda operation: all(part(operation) for part in parts)

    def _unary(self) -> Condition:
        if self._accept("!"):
            inner = self._unary()
            return lambda operation: not inner(operation)
        if self._accept("("):
            inner = self.either()
            self._expect(")")
            return inner
        if self._accept("true"):
            return lambda _: True
        if self._accept("false"):
            return lambda _: False
        return self._comparison()

    def _comparison(self) -> Condition:
        left = self._text()
        if self._accept("=="):
            right = self._text()
            return lambda operation: left(operation) == right(operation)
        if self._accept("!="):
            right = self._text()
            return lambda operation: left(operation) != right(operation)
        self._expect(".")
        name = self._next("name")
        if name not in _METHODS:
            raise InvalidBoundary(f"unknown function {name}")
        self._expect("(")
        argument = self._text()
        self._expect(")")
        return lambda operation: _METHODS[name](left(operation), argument(operation))

    def _text(self) -> _Text:
        kind, token = self._peek()
        if kind == "string":
            self._at += 1
            value = _literal(token)
            return lambda _: value
        if self._accept("resource"):
            self._expect(".")
            self._expect("name")
            return lambda operation: operation.resource
        if self._accept("api"):
            return self._attribute()
        raise InvalidBoundary(f"unexpected {token!r}")

    def _attribute(self) -> _Text:
        self._expect(".")
        self._expect("getAttribute")
        self._expect("(")
        name = _literal(self._next("string"))
        self._expect(",")
        default = _literal(self._next("string"))
        self._expect(")")
        if name != LIST_PREFIX:
            raise InvalidBoundary(f"unknown attribute {name}")
        return lambda operation: operation.list_prefix if operation.permission == _LIST else default

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _accept(self, token: str) -> bool:
        kind, found = self._peek()
        if kind in ("name", "symbol") and found == token:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise InvalidBoundary(f"expected {token!r}, not {self._peek()[1]!r}")

    def _next(self, wanted: str) -> str:
        kind, found = self._peek()
        if kind != wanted:
            raise InvalidBoundary(f"expected a {wanted}, not {found!r}")
        self._at += 1
        return found
