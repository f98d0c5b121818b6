"""Pairs of tables that a fingerprint must call equal or unequal, each the smallest of its kind, computed by Spark.

`docs/explanation/migration-evidence.md` has the table of these decisions.
"""

from typing import TYPE_CHECKING, NamedTuple

from nunatak_spark.comparison import compare
from nunatak_spark.fingerprint import fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Case(NamedTuple):
    what: str
    left: str
    right: str


# `select` is left out; a case that begins with `from` has rows of its own.
EQUAL = [
    # Layout
    Case("rows in another order", "id a from range(100)", "99 - id a from range(100)"),
    Case("columns in another order", "1 a, 'x' b", "'x' b, 1 a"),
    Case("empty tables of the same type", "id a from range(0)", "id a from range(0)"),
    # Nested fields count by name
    Case(
        "struct fields in another order",
        "named_struct('credit', 1, 'debit', 2) a",
        "named_struct('debit', 2, 'credit', 1) a",
    ),
    Case(
        "struct fields in another order in an array",
        "array(named_struct('credit', 1, 'debit', 2)) a",
        "array(named_struct('debit', 2, 'credit', 1)) a",
    ),
    Case(
        "struct fields in another order in a map key",
        "map(named_struct('x', 1, 'y', 2), 'v') a",
        "map(named_struct('y', 2, 'x', 1), 'v') a",
    ),
    Case(
        "struct fields in another order in a map value in an array in a struct",
        "named_struct('d', array(map('k', named_struct('x', 1, 'y', 2)))) a",
        "named_struct('d', array(map('k', named_struct('y', 2, 'x', 1)))) a",
    ),
    Case(
        "struct fields whose names hold marks of a type, in another order",
        "named_struct('a: int, b', 1, 'c`>', 2) a",
        "named_struct('c`>', 2, 'a: int, b', 1) a",
    ),
    # Widened
    Case("tinyint, now int", "cast(id as tinyint) a from range(9)", "cast(id as int) a from range(9)"),
    Case("int, now bigint", "cast(id as int) a from range(9)", "id a from range(9)"),
    Case(
        "float, now double",
        "cast(id / 7 as float) a from range(9)",
        "cast(cast(id / 7 as float) as double) a from range(9)",
    ),
    Case("decimal with more digits", "cast(1.25 as decimal(9,2)) a", "cast(1.25 as decimal(30,2)) a"),
    Case(
        "decimal that fills the short form, with more digits",
        "* from values (-999999999999999.999), (null), (0.001) t(a)",
        "cast(a as decimal(38,3)) a from values (-999999999999999.999), (null), (0.001) t(a)",
    ),
    Case(
        "decimal that is too long for it, with more digits",
        "cast(-12345678901234567890.12 as decimal(30,2)) a",
        "cast(-12345678901234567890.12 as decimal(38,2)) a",
    ),
    Case(
        "int in a struct in an array, now bigint",
        "array(named_struct('x', 1)) a",
        "array(named_struct('x', 1L)) a",
    ),
    Case("int as a map key, now bigint", "map(1, 'x') a", "map(1L, 'x') a"),
    # One value, several representations
    Case("0.0 and -0.0", "-0.0D a", "0.0D a"),
    Case("0.0 and -0.0 in a float", "cast(-0.0D as float) a", "cast(0 as float) a"),
    Case("0.0 and -0.0 in an array", "array(-0.0D) a", "array(0.0D) a"),
    Case("NaN and another NaN", "double('NaN') a", "0.0D * double('Infinity') a"),
    Case("NaN of a float, now double", "float('NaN') a", "double('NaN') a"),
    Case("map entries in another order", "map('a', 1, 'b', 2) a", "map('b', 2, 'a', 1) a"),
    Case("map entries in another order in an array", "array(map(1, 'x', 2, 'y')) a", "array(map(2, 'y', 1, 'x')) a"),
    Case("variant keys in another order", """parse_json('{"a":1,"b":2}') a""", """parse_json('{"b":2,"a":1}') a"""),
    Case(
        "one instant, written in two zones",
        "timestamp'2026-01-01 02:00:00+02:00' a",
        "timestamp'2026-01-01 00:00:00Z' a",
    ),
    Case("one length of time, in days and in hours", "make_dt_interval(1) a", "make_dt_interval(0, 24) a"),
    Case("the same bytes under another collation", "'a' a", "'a' collate UTF8_LCASE a"),
]
UNEQUAL = [
    # Rows
    Case("a row twice", "1 a", "* from values (1), (1) t(a)"),
    Case("two rows twice each", "* from values (1), (1), (2), (2) t(a)", "* from values (3), (3), (4), (4) t(a)"),
    Case("one row lost, another doubled", "* from values (1), (2), (2) t(a)", "* from values (1), (1), (2) t(a)"),
    Case("values in other rows", "* from values (1,'x'), (2,'y') t(a,b)", "* from values (1,'y'), (2,'x') t(a,b)"),
    Case("values in the other column", "'a' a, cast(null as string) b", "cast(null as string) a, 'a' b"),
    Case("two columns exchanged", "1 a, 2 b", "2 a, 1 b"),
    Case("a renamed column", "1 a, 2 b", "1 a, 2 c"),
    # Nested fields
    Case(
        "struct fields exchanged",
        "named_struct('credit', 1, 'debit', 2) a",
        "named_struct('debit', 1, 'credit', 2) a",
    ),
    Case(
        "struct fields exchanged in an array",
        "array(named_struct('credit', 1, 'debit', 2)) a",
        "array(named_struct('debit', 1, 'credit', 2)) a",
    ),
    Case(
        "struct fields exchanged in a map key",
        "map(named_struct('x', 1, 'y', 2), 'v') a",
        "map(named_struct('y', 1, 'x', 2), 'v') a",
    ),
    Case(
        "struct fields exchanged in a map value in an array in a struct",
        "named_struct('d', array(map('k', named_struct('x', 1, 'y', 2)))) a",
        "named_struct('d', array(map('k', named_struct('y', 1, 'x', 2)))) a",
    ),
    Case("a renamed struct field", "named_struct('x', 1) a", "named_struct('y', 1) a"),
    Case("a struct field in another case", "named_struct('x', 1) a", "named_struct('X', 1) a"),
    Case("a new struct field that is null", "named_struct('x', 1) a", "named_struct('x', 1, 'y', cast(null as int)) a"),
    Case("a struct around a value", "1 a", "named_struct('x', 1) a"),
    # Null and empty
    Case("null and empty string", "'' a", "cast(null as string) a"),
    Case("null and the text null", "'null' a", "cast(null as string) a"),
    Case("null and zero", "0 a", "cast(null as int) a"),
    Case("null and empty bytes", "x'' a", "cast(null as binary) a"),
    Case("null and empty array", "cast(array() as array<int>) a", "cast(null as array<int>) a"),
    Case("null and empty map", "cast(map() as map<int,int>) a", "cast(null as map<int,int>) a"),
    Case("null and struct of nulls", "cast(null as struct<x:int>) a", "named_struct('x', cast(null as int)) a"),
    Case("empty array and array of a null", "cast(array() as array<int>) a", "array(cast(null as int)) a"),
    Case("a null less in an array", "array(null, 1) a", "array(1) a"),
    Case("a null in the other field", "named_struct('x',null,'y',1) a", "named_struct('x',1,'y',null) a"),
    Case("a null and a zero in a map", "map('a', cast(null as int)) a", "map('a', 0) a"),
    Case("a null variant and a variant of null", "cast(null as variant) a", "parse_json('null') a"),
    # Arrays and maps
    Case("array in another order", "array(1, 2) a", "array(2, 1) a"),
    Case("other brackets", "array(array(1), array(2)) a", "array(array(1, 2)) a"),
    Case("an array and a string of the same text", "array('a', 'b') a", "'ab' a"),
    Case("map with key and value exchanged", "map(1, 2) a", "map(2, 1) a"),
    Case("map with values exchanged", "map('a', 1, 'b', 2) a", "map('a', 2, 'b', 1) a"),
    # Numbers
    Case("1.50 and 0.150", "cast(1.50 as decimal(9,2)) a", "cast(0.150 as decimal(9,3)) a"),
    Case("1.50 and 0.150 of many digits", "cast(1.50 as decimal(30,2)) a", "cast(0.150 as decimal(30,3)) a"),
    Case("1.50 and 0.150 in an array", "array(cast(1.5 as decimal(9,2))) a", "array(cast(0.15 as decimal(9,3))) a"),
    Case("1.5 with another scale", "cast(1.5 as decimal(9,1)) a", "cast(1.5 as decimal(10,2)) a"),
    Case("decimal with fewer digits", "cast(1.25 as decimal(9,2)) a", "cast(1.25 as decimal(3,2)) a"),
    Case("long decimals", "12345678901234567890.12BD a", "12345678901234567890.13BD a"),
    Case("decimal, now bigint", "cast(5 as decimal(9,0)) a", "5L a"),
    Case("decimal, now double", "cast(1.5 as decimal(9,1)) a", "1.5D a"),
    Case("bigint, now int", "5L a", "5 a"),
    Case("int, now double", "5 a", "5.0D a"),
    Case("double, now float", "1.5D a", "float(1.5) a"),
    Case("int, now text", "5 a", "'5' a"),
    Case("boolean, now int", "true a", "1 a"),
    Case("the next double", "0.1D + 0.2D a", "0.3D a"),
    # Times
    Case("timestamp, now bigint", "timestamp'2026-01-01 00:00:00Z' a", "1767225600000000L a"),
    Case("timestamp, now without zone", "timestamp'2026-01-01 00:00:00Z' a", "timestamp_ntz'2026-01-01' a"),
    Case("timestamp without zone, now with", "timestamp_ntz'2026-01-01' a", "timestamp'2026-01-01 00:00:00Z' a"),
    Case(
        "timestamp without zone in a map, now with",
        "map(1, timestamp_ntz'2026-01-01') a",
        "map(1, timestamp'2026-01-01 00:00:00Z') a",
    ),
    Case("date, now int", "date'2026-01-01' a", "20454 a"),
    Case("date, now timestamp", "date'2026-01-01' a", "timestamp_ntz'2026-01-01' a"),
    Case("one microsecond", "timestamp'2026-01-01 00:00:00.000001Z' a", "timestamp'2026-01-01 00:00:00.000002Z' a"),
    Case("julian and gregorian date", "date'1500-01-01' a", "date'1500-01-10' a"),
    Case("time of day, now bigint", "time'00:00:00.001' a", "1000000L a"),
    Case("an interval of months, now of days", "interval '1' month a", "interval '1' day a"),
    # Text and bytes
    Case("string, now binary", "'a' a", "x'61' a"),
    Case("binary, now string", "x'61' a", "'a' a"),
    Case("binary in an array, now string", "array(x'61') a", "array('a') a"),
    Case("a space at the end", "'a' a", "'a ' a"),
    Case("letters of another case", "'A' collate UTF8_LCASE a", "'a' collate UTF8_LCASE a"),
    Case("a space that the collation ignores", "'a' collate UTF8_BINARY_RTRIM a", "'a ' collate UTF8_BINARY_RTRIM a"),
    Case("one letter, two ways to write it", "'\\u00e9' a", "'e\\u0301' a"),
    Case("a UUID as text and as bytes", "repeat('0', 32) a", "unhex(repeat('0', 32)) a"),
    Case("fixed bytes with zeros at the end", "x'0100' a", "x'01' a"),
    # Variants
    Case(
        "a date and its text in a variant",
        "to_variant_object(named_struct('d', date'2026-01-01')) a",
        """parse_json('{"d":"2026-01-01"}') a""",
    ),
    Case(
        "a date and its text in a mixed array of a variant",
        "cast(array(cast(date'2026-01-01' as variant), cast(1 as variant)) as variant) a",
        """parse_json('["2026-01-01",1]') a""",
    ),
    Case("a number and its text in a variant", "parse_json('[1,true]') a", """parse_json('["1",true]') a"""),
    Case("variant, now text", "parse_json('1') a", "'1' a"),
]  # fmt: skip


def test_every_case_is_decided_as_the_table_says(spark: "SparkSession") -> None:
    cases = [(case, True) for case in EQUAL] + [(case, False) for case in UNEQUAL]
    lines, wrong = [], []
    for case, expected in cases:
        left, right = (fingerprint(spark, spark.sql(f"select {text}")) for text in (case.left, case.right))
        difference = compare(left, right)
        found = "equal" if difference.same_data else "unequal"
        lines.append(
            f"{found:8} {case.what}" + ("" if difference.same_data else f": {'; '.join(difference.sentences())}")
        )
        if difference.same_data != expected:
            wrong.append(lines[-1])
    print(f"\n{len(cases)} cases", *lines, sep="\n")

    assert len({case.what for case, _ in cases}) == len(cases) >= 60
    assert wrong == []
