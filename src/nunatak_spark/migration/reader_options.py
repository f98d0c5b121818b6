"""How files of a source are read: with fixed options, whatever the settings of the session are.

A value that one read drops silently, a second read of the same kind drops too, so a comparison would not notice. So
nothing is inferred unless the operator asks for it, and malformed data is an error.
"""

from collections.abc import Mapping

from nunatak_spark.errors import CannotRun

# Set for the whole run of a migration command.
SETTINGS = {
    # Time zone of timestamps in text and folder names, at both ends.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",  # meaning of `timestamp` in a schema
    "spark.sql.caseSensitive": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # part=00123 is a string
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Iceberg reads dates and timestamps in the proleptic Gregorian calendar, without rebasing.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",  # the legacy parser accepts January 45
}
INFER_PARTITIONS = {"spark.sql.sources.partitionColumnTypeInference.enabled": "true"}

STRICT = {"mode": "FAILFAST", "timeZone": "UTC"}
OPTIONS = {
    # RFC 4180: a quoted value may contain line breaks and doubled quotes.
    "csv": {**STRICT, "header": "true", "multiLine": "true", "escape": '"', "enforceSchema": "false"},
    "json": {**STRICT, "primitivesAsString": "true"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
INFERRING = {"csv": {"inferSchema": "true"}, "json": {"primitivesAsString": "false"}}
TEXT = frozenset(INFERRING)
# Options of schema inference; left out once the schema is known.
OF_INFERENCE = {"inferschema", "mergeschema", "primitivesasstring", "samplingratio", "prefersdecimal", "prefersdate"}


def read_options(kind: str, given: Mapping[str, str], *, infer_types: bool) -> dict[str, str]:
    """Returns the reader options for a format; those of the operator win."""
    named = {key.lower() for key in given}
    options = {**OPTIONS.get(kind, {}), **(INFERRING.get(kind, {}) if infer_types else {})}
    return {**{key: value for key, value in options.items() if key.lower() not in named}, **given}


def require_strict(given: Mapping[str, str]) -> None:
    """Raises CannotRun for options with which Spark silently skips malformed data."""
    for key, value in given.items():
        if key.lower() == "mode" and value.upper() != "FAILFAST":
            raise CannotRun(
                f"--read mode={value} silently skips records that cannot be read",
                fix="Leave it out; a record that does not fit is then named.",
            )
        if key.lower() in {"ignorecorruptfiles", "ignoremissingfiles"} and value.lower() == "true":
            raise CannotRun(
                f"--read {key}={value} silently skips files that cannot be read",
                fix="Leave it out; a file that cannot be read is then named.",
            )


def infers_types(options: Mapping[str, str]) -> bool:
    """Returns whether these options make Spark infer types from text."""
    said = {key.lower(): value.lower() for key, value in options.items()}
    return said.get("inferschema") == "true" or said.get("primitivesasstring") == "false"
