"""A string type for secrets: printing, logging or formatting one shows a placeholder."""

import hmac
from typing import NoReturn

SHOWN = "Secret(…)"


class Secret:
    """Only `reveal` returns the text. Comparison takes constant time."""

    __slots__ = ("_text",)
    _text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_text", text)

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, specification: str) -> str:
        return SHOWN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode("utf-8"), other._text.encode("utf-8"))

    __hash__ = None  # type: ignore[assignment]  # a dict lookup would not take constant time

    def __bool__(self) -> bool:
        return bool(self._text)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret does not change")

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: reveal it where it is used")
