"""Text on its way to a terminal: whoever chose a name must not move the cursor, change colours or turn lines around."""

import unicodedata

import click

# Control characters (ESC and the C1 codes among them), invisible format characters (those that turn the direction of
# text among them), halves of characters, and what some terminals take for the end of a line.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LAYOUT = frozenset("\n\t")


def printable(text: object, *, one_line: bool = False) -> str:
    """The text with every character escaped that a terminal would act on; line ends are kept, unless it is one line."""
    told = str(text)
    if told.isprintable():
        return told
    kept = frozenset() if one_line else _LAYOUT
    return "".join(_escape(each) if _acts(each, kept) else each for each in told)


def printable_json(text: str) -> str:
    """JSON of the same value without such characters: inside strings they are escaped, elsewhere there are none."""
    if text.isprintable():
        return text
    return "".join(_escape_json(each) if _acts(each, _LAYOUT) else each for each in text)


def echo(message: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text, or bytes of JSON."""
    told = printable_json(message.decode("utf-8", "replace")) if isinstance(message, bytes) else printable(message)
    click.echo(told, nl=nl, err=err)


def with_printable_message(error: click.ClickException) -> click.ClickException:
    """The same error, as click may show it: its message repeats what a server or a file says."""
    vars(error)["message"] = printable(error.message)
    return error


def _acts(character: str, kept: frozenset[str]) -> bool:
    return unicodedata.category(character) in _CATEGORIES and character not in kept


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(character: str) -> str:
    """JSON knows no code points beyond four digits: they are written as two halves."""
    halves = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{halves[at]:02x}{halves[at + 1]:02x}" for at in range(0, len(halves), 2))
