"""Places are compared by segments, and what could be read in two ways is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak.errors import BadRequest
from nunatak.objectstore.location import (
    Location,
    is_inside_any,
    parse_file_location,
    parse_location,
    path_of,
    possible_locations,
    require_inside,
)

SAME = [
    ("file:///w/t", "file:/w/t"),
    ("file:///w/t", "file:///w/t/"),
    ("file:///w/t", "file://localhost/w/t"),
    ("file:///w/t", "FILE:///w/t"),
    ("file:///w/t", "/w/t"),
    ("s3://b/t", "s3a://b/t"),
    ("s3://b/t", "s3n://b/t/"),
    ("abfss://c@a.net/t", "wasbs://c@a.net/t"),
]
DIFFERENT = [
    ("file:///w/t", "file:///w/T"),
    ("file:///w/t", "s3://w/t"),
    ("s3://b/t", "s3://B/t"),
    ("s3://b/t", "gs://b/t"),
    ("file:///w/a%2Fb", "file:///w/a/b"),
    ("file:///w/a b", "file:///w/a+b"),
]
REFUSED = [
    "",
    "t",
    "w/t",
    "file",
    "file://host/w",
    "file:///w/../t",
    "file:///w/./t",
    "file:///w//t",
    "s3://b//t",
    "s3://key:secret@b/t",
    "file:///w/a\x00b",
    "file:///w/a\nb",
    "file:///w/a?b",
    "file:///w/a#b",
    "file:///w/a\\b",
    "://b/t",
    "1s://b",
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_place_are_equal(one: str, other: str) -> None:
    assert parse_location(one) == parse_location(other)
    assert str(parse_location(one)) == str(parse_location(other))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_places_are_not_equal(one: str, other: str) -> None:
    assert parse_location(one) != parse_location(other)


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_what_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid location"):
        parse_location(text)


BELOW = ["", "/f", "//f", "/f/", "/..", "/.", "/f?", "/f\n", "/deep/er/f", "/ f", "/a%2Fb"]


@pytest.mark.parametrize(
    "place", sorted({*(text for pair in (*SAME, *DIFFERENT) for text in pair), *REFUSED}), ids=repr
)
def test_the_place_of_a_file_is_the_same_or_refused_as_well(place: str) -> None:
    for below in BELOW:
        outcomes = []
        for parse in (parse_location, parse_file_location):
            try:
                outcomes.append(str(parse(place + below)))
            except BadRequest as error:
                outcomes.append(error.message)
        assert outcomes[0] == outcomes[1] or (outcomes[0].startswith("Invalid") and outcomes[1].startswith("Invalid"))


def test_a_place_contains_itself_and_what_lies_below_by_segments() -> None:
    place = parse_location("file:///w/t")

    for inside in ("file:///w/t", "file:///w/t/", "file:/w/t/data/x"):
        assert place.contains(parse_location(inside))
    for outside in ("file:///w/t2", "file:///w/t-old/x", "file:///w", "file:///", "file:///W/t", "s3://w/t"):
        assert not place.contains(parse_location(outside))


def test_a_place_outside_all_allowed_ones_is_refused_with_a_way_out() -> None:
    allowed = (parse_location("file:///w"), parse_location("file:///lake"))

    assert require_inside("file:/lake/t/", allowed, "location") == parse_location("file:///lake/t")
    with pytest.raises(BadRequest) as refused:
        require_inside("file:///w2/t", allowed, "property write.data.path")
    assert refused.value.message.startswith("Invalid property write.data.path: file:///w2/t lies outside the locations")
    assert refused.value.hint


def test_the_path_of_a_local_place_is_taken_as_it_stands() -> None:
    assert path_of(parse_location("file:///w/a b%20c+d")) == "/w/a b%20c+d"


segments = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_characters="/?#\\\x7f", min_codepoint=32), min_size=1, max_size=8
    ).filter(lambda segment: segment not in (".", "..")),
    min_size=1,
    max_size=5,
)


@given(segments)
def test_printing_and_parsing_a_place_gives_it_back(parts: list[str]) -> None:
    place = Location("file", "", tuple(parts))

    assert parse_location(str(place)) == place


@given(segments, segments)
def test_a_place_contains_another_only_if_its_path_is_a_folder_of_it(one: list[str], other: list[str]) -> None:
    first, second = Location("file", "", tuple(one)), Location("file", "", tuple(other))

    assert first.contains(second) == f"{path_of(second)}/".startswith(f"{path_of(first)}/")
    assert first.contains(Location("file", "", (*one, *other)))
    assert all(Location("file", "", tuple(one)).parent(size).contains(first) for size in range(len(one) + 1))


# How others may read a path

UNDERSTOOD = [
    ("file:///w/t/x", "/w/t/x"),
    ("file:/w//t/x", "/w/t/x"),
    ("file:////w/t/x/", "/w/t/x"),
    ("file:///w/o/../t/x", "/w/t/x"),
    ("file:///../../w/./t/x", "/w/t/x"),
    ("file:///w/%74/x", "/w/t/x"),
    ("file:///w/%2574/x", "/w/t/x"),
    ("file:///w/o%2F..%2ft/x", "/w/t/x"),
    ("file:///w/t/x?y=1", "/w/t/x"),
    ("file:///w/t/x#y", "/w/t/x"),
    ("file:///w\\t\\x", "/w/t/x"),
    ("file://w/t/x", "/w/t/x"),
    (" file:///w/t/x", "/w/t/x"),
    ("FILE://localhost/w/t/x", "/w/t/x"),
]


@pytest.mark.parametrize(("text", "path"), UNDERSTOOD)
def test_every_way_to_read_a_path_is_known(text: str, path: str) -> None:
    assert path in {path_of(each) for each in possible_locations(text)}


def test_a_path_of_a_store_may_be_read_in_several_ways() -> None:
    found = {str(each) for each in possible_locations("s3a://key:secret@bucket/a%2Fb")}

    assert {"s3://bucket/a%2Fb", "s3://bucket/a/b"} <= found


@pytest.mark.parametrize("text", ["", "x", "relative/x", "file:///w/\0", "://", "1:/x"])
def test_what_names_no_file_has_no_reading(text: str) -> None:
    assert possible_locations(text) == []


@given(st.text(max_size=60))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    for place in possible_locations(text):
        assert not {"", ".", ".."} & set(place.segments)


@given(st.lists(st.sampled_from(["a", "..", ".", "", "%2e%2e", "%2F", "b%20c", "t", "%252e%252e"]), max_size=8))
def test_what_is_inside_is_inside_for_every_reader(names: list[str]) -> None:
    """Whatever a path is made of: if it counts as inside, no reading of it leads out."""
    home = parse_location("file:///w/t")
    path = "file:///w/t/" + "/".join(names)

    if is_inside_any([home], path):
        assert all(home.contains(place) for place in possible_locations(path))


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("file:///w/t/x", True),
        ("file:/w/t/a%20b", True),
        ("file:///w/t%2F/x", False),
        ("file:///w/t2/x", False),
        ("file:///w/t/%2e%2e/x", False),
        ("file:///w/t/../x", False),
        ("nonsense", False),
    ],
)
def test_a_file_is_inside_a_place_by_its_segments(path: str, inside: bool) -> None:
    assert is_inside_any([parse_location("file:///other"), parse_location("file:///w/t")], path) is inside


def test_a_percent_sign_in_the_place_itself_is_one_of_its_characters() -> None:
    assert is_inside_any([parse_location("file:///w/t%2F")], "file:///w/t%2F/metadata/x")
