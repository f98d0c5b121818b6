"""Errors that keep Spark work from starting; each one carries its fix."""

from nunatak_spark.redaction import redact_text


class CannotRun(Exception):
    """This machine or this request lacks something; `fix` says what to do."""

    def __init__(self, problem: str, *, fix: str) -> None:
        self.problem = redact_text(problem)  # Spark's messages may contain URLs with passwords
        self.fix = redact_text(fix)
        super().__init__(f"{self.problem}\nFix: {self.fix}")


class UnsupportedPyspark(CannotRun):
    """pyspark is missing, or no Iceberg runtime exists for its version."""


class UnsupportedJava(CannotRun):
    """Java is missing, or this Spark does not run on its version."""


class JarNotFound(CannotRun):
    """A jar was found nowhere."""


class JarChecksumMismatch(JarNotFound):
    """A jar does not have the pinned checksum."""


class ConfigurationConflict(CannotRun):
    """An existing setting, jar or folder conflicts with the requested one."""


class InvalidSpec(CannotRun):
    """The job does not exist, or its specification is invalid."""
