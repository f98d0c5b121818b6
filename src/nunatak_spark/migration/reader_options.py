"""How the files of a source are read: always alike, whatever the settings of the session are.

What one reading lets pass, another reading of the same kind lets pass too, so a comparison of the two would find
nothing. Therefore nothing is guessed unless the operator asks for it, and what does not fit is an error.
"""

from collections.abc import Mapping

from nunatak_spark.errors import CannotRun

# Held for all the work of a migration.
SETTINGS = {
    # Text and folder names are turned into timestamps in this zone, at both ends.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",  # what the word `timestamp` means in a schema
    "spark.sql.caseSensitive": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # part=00123 is a text
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Iceberg reads days and timestamps as they are stored, in the proleptic Gregorian calendar.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",  # the legacy one takes the 45th of January for a day
}
INFER_PARTITIONS = {"spark.sql.sources.partitionColumnTypeInference.enabled": "true"}

STRICT = {"mode": "FAILFAST", "timeZone": "UTC"}
OPTIONS = {
    # RFC 4180: a quoted value may hold line breaks, and quotes that are written twice.
    "csv": {**STRICT, "header": "true", "multiLine": "true", "escape": '"', "enforceSchema": "false"},
    "json": {**STRICT, "primitivesAsString": "true"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
INFERRING = {"csv": {"inferSchema": "true"}, "json": {"primitivesAsString": "false"}}
TEXT = frozenset(INFERRING)
# Options that find out a schema. Once that is known they have no say.
OF_INFERENCE = {"inferschema", "mergeschema", "primitivesasstring", "samplingratio", "prefersdecimal", "prefersdate"}


def read_options(kind: str, given: Mapping[str, str], *, infer_types: bool) -> dict[str, str]:
    """Options of Spark's reader for files of this format; those that the operator gives win."""
    named = {key.lower() for key in given}
    options = {**OPTIONS.get(kind, {}), **(INFERRING.get(kind, {}) if infer_types else {})}
    return {**{key: value for key, value in options.items() if key.lower() not in named}, **given}


def require_strict(given: Mapping[str, str]) -> None:
    """Refuse options under which Spark leaves out what it cannot read."""
    for key, value in given.items():
        if key.lower() == "mode" and value.upper() != "FAILFAST":
            raise CannotRun(
                f"--read mode={value} passes over records that cannot be read, and nobody would notice",
                fix="Leave it out; a record that does not fit is then named.",
            )
        if key.lower() in {"ignorecorruptfiles", "ignoremissingfiles"} and value.lower() == "true":
            raise CannotRun(
                f"--read {key}={value} passes over files that cannot be read, and nobody would notice",
                fix="Leave it out; a file that cannot be read is then named.",
            )


def infers_types(options: Mapping[str, str]) -> bool:
    """Whether these options let Spark guess types from text."""
    said = {key.lower(): value.lower() for key, value in options.items()}
    return said.get("inferschema") == "true" or said.get("primitivesasstring") == "false"
