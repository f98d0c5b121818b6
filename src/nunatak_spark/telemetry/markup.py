"""HTML and SVG written as nested calls: whatever is not markup already is escaped, so nothing has to be remembered."""

from html import escape


class Markup(str):
    """Text that is markup; only `tag` and `together` make it."""

    __slots__ = ()


Child = str | int | float | None
Attribute = str | int | float | None


def tag(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """`<name …>children</name>`; None is left out. In an attribute's name `_` is `-`, and one at its end nothing."""
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{together(*children)}</{name}>")


def together(*children: Child) -> Markup:
    return Markup("".join(_safe(child) for child in children if child is not None))


def _safe(child: str | float) -> str:
    return child if isinstance(child, Markup) else escape(_text(child))


def _text(value: str | float) -> str:
    """Coordinates need no more than a tenth."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
