"""The values of settings: each function converts text to a value, or raises ValueError with what is allowed."""

import json
import re
from collections.abc import Iterator, Mapping

AUTH_MODES = ("none", "embedded", "oidc", "proxy", "certificate")
OWN_PROPERTIES = frozenset({"prefix", "warehouse", "namespace-separator"})
MAX_CLIENT_PROPERTIES = 100
MAX_PAGE_SIZE = 1000
_PATH_WORD = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,100}")
_SECRET_PROPERTY = re.compile(
    r"secret|passw|private-key|access-key|account-key|shared-key|authorization|(^|[._-])(token|credential|credentials)$",
    re.IGNORECASE,
)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError("a whole number is needed") from error


def parse_port(text: str) -> int:
    value = _whole(text)
    if not 0 <= value <= 65535:
        raise ValueError("a port is a number from 0 to 65535")
    return value


def parse_positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def parse_lease(text: str) -> int:
    value = _whole(text)
    if not 3 <= value <= 3600:
        raise ValueError("between 3 and 3600 seconds: a worker reports three times in it")
    return value


def parse_connections(text: str) -> int:
    value = _whole(text)
    if value < 3:
        raise ValueError("at least 3: one for lookups, one for commits, one for everything else")
    return value


def parse_not_negative(text: str) -> int:
    value = _whole(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def parse_separator(text: str) -> str:
    if len(text) != 1 or text in "/%":
        raise ValueError("one character other than / and %")
    return text


def parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for item in parse_list(text):
        name, equals, location = item.partition("=")
        if not equals or not name or not location:
            raise ValueError("write name=location, separated by commas")
        pairs.append((name, location))
    return tuple(pairs)


def parse_modes(text: str) -> tuple[str, ...]:
    modes = parse_list(text)
    unknown = [mode for mode in modes if mode not in AUTH_MODES]
    if unknown or not modes:
        raise ValueError(f"choose from {', '.join(AUTH_MODES)}")
    if "none" in modes and len(modes) > 1:
        raise ValueError("none cannot be combined with another")
    return modes


def parse_authorizer(text: str) -> str:
    if text not in ("builtin", "opa", "cedar"):
        raise ValueError("choose builtin, opa or cedar")
    return text


def parse_page_size(text: str) -> int:
    value = _whole(text)
    if not 1 <= value <= MAX_PAGE_SIZE:
        raise ValueError(f"between 1 and {MAX_PAGE_SIZE}")
    return value


def parse_error_types(text: str) -> str:
    if text not in ("iceberg", "distinct"):
        raise ValueError("choose iceberg or distinct")
    return text


def parse_base_paths(text: str) -> tuple[str, ...]:
    """Parses base paths to the form /a/b, without a trailing /v1, which clients append themselves."""
    paths = []
    for item in parse_list(text):
        words = item.strip("/").removesuffix("/v1").split("/")
        if not all(_PATH_WORD.fullmatch(word) for word in words) or "v1" in words:
            raise ValueError("write paths such as /lakehouse or /data/iceberg, of letters, digits and . _ ~ -")
        paths.append("/" + "/".join(words))
    return tuple(dict.fromkeys(paths))


def parse_properties(text: str) -> tuple[tuple[str, str], ...]:
    """Parses properties for clients: name=value separated by commas, or a JSON object."""
    if text.lstrip().startswith("{"):
        try:
            pairs = tuple(_flattened("", json.loads(text)))
        except ValueError as error:
            raise ValueError("not a JSON object of texts") from error
    else:
        items = [item.partition("=") for item in parse_list(text)]
        if not all(name and equals for name, equals, _ in items):
            raise ValueError("write name=value, separated by commas")
        pairs = tuple((name.strip(), value.strip()) for name, _, value in items)
    for name, value in pairs:
        _check_property(name, value)
    if len(pairs) > MAX_CLIENT_PROPERTIES or len(dict(pairs)) != len(pairs):
        raise ValueError(f"at most {MAX_CLIENT_PROPERTIES} names, each once")
    return pairs


def _flattened(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Joins the names of nested tables by dots: TOML reads an unquoted name with dots as nested tables."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flattened(f"{prefix}{name}.", value)
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value)
        else:
            raise ValueError("a value is a text or a number")


def _check_property(name: str, value: str) -> None:
    if not name or len(name) > 255 or len(value) > 1000 or not (name + value).isprintable():
        raise ValueError("names have at most 255 characters and values 1000, none of them a control character")
    if name in OWN_PROPERTIES:
        raise ValueError(f"{name} is set by the server itself")
    if _SECRET_PROPERTY.search(name):
        raise ValueError(f"{name[:100]} looks like a secret, and /v1/config returns it to every caller")


def parse_tables(text: str) -> tuple[tuple[str, str], ...]:
    """Parses a JSON object of objects, by name of warehouse; returns each as JSON text."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError('write a table for each warehouse, or JSON such as {"default": {"region": "eu-north-1"}}')
    return tuple((name, json.dumps(each)) for name, each in found.items())


def parse_level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError("choose debug, info, warning or error")
    return text.lower()


def parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"
