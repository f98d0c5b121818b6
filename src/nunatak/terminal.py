"""Escapes text for the terminal: names from clients must not move the cursor, set colours or reverse text."""

import unicodedata

import click

# Control characters (with ESC and the C1 codes), invisible format characters (with the bidirectional overrides),
# surrogates, and line and paragraph separators.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LAYOUT = frozenset("\n\t")


def printable(text: object, *, one_line: bool = False) -> str:
    """Escapes every character that a terminal would act on; keeps newlines and tabs, unless `one_line`."""
    told = str(text)
    if told.isprintable():
        return told
    kept = frozenset() if one_line else _LAYOUT
    return "".join(_escape(each) if _acts(each, kept) else each for each in told)


def printable_json(text: str) -> str:
    """Escapes such characters in JSON text; the value stays the same, since they only occur inside strings."""
    if text.isprintable():
        return text
    return "".join(_escape_json(each) if _acts(each, _LAYOUT) else each for each in text)


def echo(message: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Prints a text, or JSON given as bytes, escaped."""
    told = printable_json(message.decode("utf-8", "replace")) if isinstance(message, bytes) else printable(message)
    click.echo(told, nl=nl, err=err)


def with_printable_message(error: click.ClickException) -> click.ClickException:
    """Escapes the message of an error before click prints it: it may quote a server or a file."""
    vars(error)["message"] = printable(error.message)
    return error


def _acts(character: str, kept: frozenset[str]) -> bool:
    return unicodedata.category(character) in _CATEGORIES and character not in kept


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(character: str) -> str:
    """Escapes a character for JSON; a code point above U+FFFF becomes a surrogate pair."""
    halves = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{halves[at]:02x}{halves[at + 1]:02x}" for at in range(0, len(halves), 2))
