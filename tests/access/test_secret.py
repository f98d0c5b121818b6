"""A Secret: nothing that prints, formats, logs or stores it by accident shows its text."""

import copy
import dataclasses
import io
import json
import logging
import os
import pickle
import traceback
from collections.abc import Callable

import msgspec
import pytest

from nunatak.secret import SHOWN, Secret
from nunatak.settings import load

TEXT = "correct-horse-battery"


@dataclasses.dataclass(frozen=True)
class Holder:
    password: Secret


def logged(secret: Secret) -> str:
    stream = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))
    logger.error("it is %s or %r in %s", secret, secret, [secret])
    return stream.getvalue()


def traced(secret: Secret) -> str:
    try:
        raise ValueError(secret)
    except ValueError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


SHOWINGS = {
    "repr": repr,
    "str": str,
    "format": lambda secret: f"{secret} {secret!s} {secret!r} {secret:>80}",
    "percent": lambda secret: "%s %r" % (secret, secret),  # noqa: UP031
    "a list": lambda secret: str([secret]),
    "a dataclass": lambda secret: str(Holder(secret)),
    "asdict": lambda secret: str(dataclasses.asdict(Holder(secret))),
    "json with a default": lambda secret: json.dumps({"a": secret}, default=str),
    "a log line": logged,
    "a traceback": traced,
}


@pytest.mark.parametrize("show", SHOWINGS.values(), ids=SHOWINGS.keys())
def test_whatever_shows_it_shows_a_placeholder(show: Callable[[Secret], str]) -> None:
    text = show(Secret(TEXT))

    assert TEXT not in text
    assert SHOWN in text.replace("\\u2026", "…")


@pytest.mark.parametrize("dump", [json.dumps, msgspec.json.encode, pickle.dumps, msgspec.msgpack.encode])
def test_what_would_store_it_refuses(dump: Callable[[object], object]) -> None:
    with pytest.raises(TypeError) as refused:
        dump(Secret(TEXT))

    assert TEXT not in str(refused.value)


def test_only_reveal_gives_the_text() -> None:
    secret = Secret(TEXT)

    assert secret.reveal() == TEXT
    assert [name for name in dir(secret) if not name.startswith("__")] == ["_text", "reveal"]
    assert not hasattr(secret, "__dict__")


def test_two_are_equal_if_their_texts_are() -> None:
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret(TEXT + "x")
    assert Secret("ä") == Secret("ä")
    assert Secret(TEXT) != TEXT


def test_it_does_not_change_and_is_no_key() -> None:
    secret = Secret(TEXT)

    with pytest.raises(AttributeError):
        secret._text = "other"
    with pytest.raises(TypeError):
        hash(secret)
    assert copy.deepcopy([secret])[0] is copy.copy(secret) is secret


def test_an_empty_one_is_false() -> None:
    assert not Secret("")
    assert Secret(TEXT)


def test_settings_print_neither_the_token_nor_the_password() -> None:
    environment = {
        "NUNATAK_CONFIG": os.devnull,
        "NUNATAK_OPA_TOKEN": TEXT,
        "NUNATAK_DATABASE_URL": f"postgresql://me:{TEXT}@db/lake",
    }

    settings = load({}, environment)

    assert TEXT not in repr(settings)
    assert settings.opa_token.reveal() == TEXT
    assert TEXT in settings.database_url
