"""What of two tables is compared and how their partitions are found, without Spark."""

from nunatak_spark.fingerprint import plan
from nunatak_spark.migration.content_comparison import (
    fingerprint_statement,
    padded_columns,
    partition_expressions,
    select_expressions,
)


def test_every_transform_becomes_sql_for_rows_of_any_table() -> None:
    inner = {"type": "struct", "fields": [{"id": 4, "name": "at", "required": False, "type": "timestamptz"}]}
    fields = [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "a`b", "required": False, "type": "string"},
        {"id": 3, "name": "event", "required": False, "type": inner},
    ]
    transforms = [
        (2, "identity"),
        (1, "bucket[4]"),
        (2, "truncate[3]"),
        (4, "day"),
        (4, "hour"),
        (1, "void"),
        (9, "day"),
    ]
    document = {
        "schemas": [{"schema-id": 1, "type": "struct", "fields": fields}],
        "current-schema-id": 1,
        "partition-specs": [
            {"spec-id": 0, "fields": []},
            {"spec-id": 2, "fields": [{"source-id": source, "transform": one} for source, one in transforms]},
        ],
        "default-spec-id": 2,
    }

    assert partition_expressions(document, "lake") == [
        "`a``b`",
        "`lake`.system.bucket(4, `id`)",
        "`lake`.system.truncate(3, `a``b`)",
        "`lake`.system.days(`event`.`at`)",
        "`lake`.system.hours(`event`.`at`)",
    ]
    assert partition_expressions({**document, "default-spec-id": 0}, "lake") == []


def test_columns_have_the_names_of_the_source_and_char_is_trimmed_on_both_sides() -> None:
    assert select_expressions(["userId", "code", "more"], ["userid", "code"], {"code"}) == [
        "`userId` AS `userid`",
        "rtrim(`code`) AS `code`",
        "`more` AS `more`",
    ]


def test_char_is_known_from_spark_and_from_the_metastore() -> None:
    fields = [
        {"name": "a", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}},
        {"name": "B", "type": "string", "metadata": {}},
        {"name": "c", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}},
        {"name": "d", "type": {"type": "array", "elementType": "string"}, "metadata": {}},
    ]

    assert padded_columns({"fields": fields}, {"b": "char(9)", "c": "varchar(3)"}) == {"a", "B"}


def test_the_statement_can_be_run_again() -> None:
    planned = plan({"fields": [{"name": "a", "type": "long"}]})

    assert fingerprint_statement(planned, "lake.ns.t").startswith("SELECT count(*) as n, ")
    assert fingerprint_statement(planned, "lake.ns.t").endswith(" FROM lake.ns.t))")
