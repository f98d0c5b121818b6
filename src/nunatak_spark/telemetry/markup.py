"""HTML and SVG as nested calls: everything that is not Markup already is escaped."""

from html import escape


class Markup(str):
    """Escaped text; only `tag` and `concat` create it."""

    __slots__ = ()


Child = str | int | float | None
Attribute = str | int | float | None


def tag(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """Returns `<name …>children</name>`; None is left out.

    In attribute names `_` becomes `-`, a trailing `_` is dropped.
    """
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{concat(*children)}</{name}>")


def concat(*children: Child) -> Markup:
    return Markup("".join(_safe(child) for child in children if child is not None))


def _safe(child: str | float) -> str:
    return child if isinstance(child, Markup) else escape(_text(child))


def _text(value: str | float) -> str:
    """Formats a value; coordinates with one decimal."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
