"""Page tokens: made here, read here, and worthless anywhere else."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.api.paging import EVERYTHING, MAX_PAGE, Page, Tokens
from nunatak.errors import BadRequest

TOKENS = Tokens(b"secret")
names = st.text(st.characters(codec="utf-8"), max_size=50)


@given(names, names)
def test_a_token_is_read_back_by_its_own_list(resource: str, after: str) -> None:
    token = TOKENS.make(resource, after)

    assert TOKENS.read(resource, token) == after
    assert token.isascii()
    assert token.replace("-", "").replace("_", "").isalnum()


@given(names, names, names)
def test_a_token_is_refused_by_any_other_list(resource: str, other: str, after: str) -> None:
    if resource == other:
        return
    with pytest.raises(BadRequest, match="Invalid pageToken"):
        TOKENS.read(other, TOKENS.make(resource, after))


def test_a_token_of_another_server_is_refused() -> None:
    with pytest.raises(BadRequest, match="Invalid pageToken"):
        TOKENS.read("r", Tokens(b"another").make("r", "a"))


@given(st.text(max_size=60))
def test_a_made_up_token_is_refused(token: str) -> None:
    with pytest.raises(BadRequest, match="Invalid pageToken"):
        TOKENS.read("r", token)


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ({}, Page("", EVERYTHING)),
        ({"pageToken": ""}, Page("", MAX_PAGE)),
        ({"pageSize": "1"}, Page("", 1)),
        ({"pageSize": "007"}, Page("", 7)),
        ({"pageSize": "999999999"}, Page("", MAX_PAGE)),
        ({"pageToken": TOKENS.make("r", "b"), "pageSize": "2"}, Page("b", 2)),
        ({"pageToken": TOKENS.make("r", "b")}, Page("b", MAX_PAGE)),
    ],
    ids=["nothing", "begin", "size", "zeros", "too large", "token and size", "token"],  # tokens differ each time
)
def test_a_page_is_what_the_query_says(query: dict[str, str], page: Page) -> None:
    assert TOKENS.page("r", query) == page


@pytest.mark.parametrize("size", ["", "0", "-1", "+1", "1.0", " 1", "ten", "١", "9999999999", "0x10"])
def test_a_page_size_that_is_no_positive_number_is_refused(size: str) -> None:
    with pytest.raises(BadRequest, match="Invalid pageSize"):
        TOKENS.page("r", {"pageSize": size})


@given(names, names)
def test_a_token_holds_no_name_in_clear_and_is_another_each_time(resource: str, after: str) -> None:
    first, second = TOKENS.make(resource, after), TOKENS.make(resource, after)

    assert first != second
    if len(after) > 2:
        assert after.encode() not in base64.urlsafe_b64decode(first + "=" * (-len(first) % 4))


def test_a_token_does_not_tell_how_long_the_name_is() -> None:
    assert len({len(TOKENS.make("r", "x" * length)) for length in range(64)}) == 1


def test_a_token_of_the_old_form_is_refused() -> None:
    """It was signed and not encrypted."""
    mac = hmac.digest(b"secret", b"r\0name", "sha256")[:12]
    old = base64.urlsafe_b64encode(mac + b"name").decode().rstrip("=")

    with pytest.raises(BadRequest, match="Invalid pageToken"):
        TOKENS.read("r", old)
