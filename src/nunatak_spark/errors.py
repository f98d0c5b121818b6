"""What keeps Spark work from starting, or from ending; each says what to do about it."""

from nunatak_spark.redaction import redact_text


class CannotRun(Exception):
    """This machine or this request lacks something; `fix` is the line that puts it right."""

    def __init__(self, problem: str, *, fix: str) -> None:
        self.problem = redact_text(problem)  # what Spark says may repeat an address with its password
        self.fix = redact_text(fix)
        super().__init__(f"{self.problem}\nFix: {self.fix}")


class UnsupportedPyspark(CannotRun):
    """No pyspark, or one that no Iceberg runtime belongs to."""


class UnsupportedJava(CannotRun):
    """No Java, or one that this Spark does not run on."""


class JarNotFound(CannotRun):
    """A jar is nowhere to be found."""


class JarChecksumMismatch(JarNotFound):
    """A file is not the one that was pinned: damaged, or somebody else's."""


class ConfigurationConflict(CannotRun):
    """Something is set already that cannot live beside what we were asked to set."""


class InvalidSpec(CannotRun):
    """The job does not exist, or its specification is not one."""
