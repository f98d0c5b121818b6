"""How files of a source are read, and what a second parser counts in text; no Spark."""

import gzip
from typing import Any

import pyarrow
import pytest

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.reader_options import infers_types, read_options
from nunatak_spark.migration.sources.folder import ambiguous_names, folder_source, leaf_types
from nunatak_spark.migration.sources.metastore_tables import format_and_options
from nunatak_spark.migration.text_records import record_counter

CSV = read_options("csv", {}, infer_types=False)
JSON = read_options("json", {}, infer_types=False)


def counted(content: bytes, kind: str, options: dict[str, str], path: str = "file:/a") -> Any:
    """The number of records, or what is wrong."""
    batch = pyarrow.RecordBatch.from_pydict({"path": [path], "content": [content]})
    (answer,) = record_counter(kind, options)(iter([batch]))
    (row,) = answer.to_pylist()
    return row["problem"] or row["records"]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_nothing_is_guessed_from_text_and_nothing_is_passed_over_unless_asked_for(kind: str) -> None:
    strict, asked = read_options(kind, {}, infer_types=False), read_options(kind, {}, infer_types=True)

    assert strict["mode"] == asked["mode"] == "FAILFAST"
    assert strict["timeZone"] == "UTC"
    assert (infers_types(strict), infers_types(asked)) == (False, True)


def test_an_option_of_the_operator_wins_in_whatever_case_it_is_written() -> None:
    options = read_options("csv", {"MULTILINE": "false", "inferschema": "TRUE"}, infer_types=False)

    assert "multiLine" not in options
    assert infers_types(options)


@pytest.mark.parametrize("option", [{"mode": "PERMISSIVE"}, {"Mode": "dropmalformed"}, {"ignoreCorruptFiles": "true"}])
def test_a_reading_that_passes_over_what_does_not_fit_is_refused(option: dict[str, str]) -> None:
    with pytest.raises(CannotRun, match="silently skips"):
        folder_source("old", "/srv", None, option)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"id,what\n1,a\n2,b\n", 2),
        (b"id,what\r\n1,a\r\n", 1),
        (b'id,what\n1,"two\nlines"\n2,"say ""hi"", please"\n', 2),
        (b"\xef\xbb\xbfid,what\n1,a\n", 1),
        (b"", 0),
        (b"id,what\n\n1,a\n", 1),
        (b"id,what\n1\n", "record 2 has 1 values, and the first one 2"),
        (b"id,what\n1,a,b\n", "record 2 has 3 values, and the first one 2"),
        (b'id,what\n1,"open', "unexpected end of data"),
        ("id,what\n1,été\n".encode("latin-1"), "'utf-8' codec can't decode byte 0xe9 in position 10: invalid continu"),
    ],
    ids=str,
)
def test_records_of_csv_are_counted_strictly(content: bytes, found: Any) -> None:
    answer = counted(content, "csv", CSV)

    assert answer == found or (isinstance(found, str) and str(answer).startswith(found))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"a":1}\n{"a":2}\n', 2),
        (b'[{"a":1},{"a":2}]\n', 2),
        (b'\n{"a":1}\r\n', 1),
        (b'{"a":1} {"a":2}\n', "line 1: Extra data"),
        (b'{"a":1},\n', "line 1: Extra data"),
        (b'{"a":1,"a":2}\n', "line 1: an object has two members of one name"),
        (b'{"a":{"b":1,"b":2}}\n', "line 1: an object has two members of one name"),
        (b'{"a":00123}\n', "line 1: "),
        (b"{'a':1}\n", "line 1: "),
    ],
    ids=str,
)
def test_records_of_json_are_counted_strictly(content: bytes, found: Any) -> None:
    answer = counted(content, "json", JSON)

    assert answer == found or (isinstance(found, str) and str(answer).startswith(found))


def test_the_second_parser_is_told_what_spark_is_told() -> None:
    assert counted(gzip.compress(b"a;b\n1;2\n"), "csv", {**CSV, "sep": ";"}, "s3://b/a.csv.gz") == 1
    assert counted("a\n\u00e9\n".encode("utf-16"), "csv", {**CSV, "encoding": "UTF-16"}) == 1
    assert counted(b'{"a":\n1}', "json", {**JSON, "multiLine": "true"}) == 1
    assert counted(b'1\x01say "hi\n', "csv", {"sep": "\x01", "quote": "", "header": "false"}) == 1


def test_hives_text_is_read_strictly_and_its_header_is_no_record() -> None:
    kind, options = format_and_options(
        "org.apache.hadoop.hive.serde2.OpenCSVSerde", {}, {"skip.header.line.count": "1"}
    )

    assert (kind, options["mode"], options["header"], options["escape"]) == ("csv", "FAILFAST", "true", "\\")
    assert format_and_options("x.LazySimpleSerDe", {}, {"skip.header.line.count": "2"}) == ("", {})
    assert format_and_options("x.LazySimpleSerDe", {}, {})[1]["header"] == "false"
    assert format_and_options("x.JsonSerDe", {}, {})[1]["mode"] == "FAILFAST"


def test_names_that_differ_in_case_alone_are_found_at_every_depth() -> None:
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long"}, {"name": "X", "type": "long"}]}
    deep = {"type": "array", "elementType": {"type": "map", "keyType": "string", "valueType": inner}}
    kinds = {"id": "long", "ID": "long", "deep": deep}
    schema = {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}

    assert dict(ambiguous_names(schema)) == {"id": ["id", "ID"], "deep.x": ["x", "X"]}
    assert ("deep.elementType.valueType.x", "long") in set(leaf_types(schema))
