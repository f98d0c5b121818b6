"""The one line that is told of a failure that py4j, Spark or Spark Connect raises; tests/spark has real ones."""

import pytest

from nunatak_spark.failure_reason import failure_reason, throwables

CALLING = "An error occurred while calling o54.sql.\n: "
FRAMES = "\tat org.apache.spark.sql.classic.SparkSession.sql(SparkSession.scala:1)\n\t... 12 more\n"


class Captured(Exception):
    """As PySpark keeps an exception of Java: its text is short, and the trace beside it."""

    def __init__(self, text: str, trace: str) -> None:
        super().__init__(text)
        self._stackTrace = trace


class OverConnect(Exception):
    def __init__(self, text: str, trace: str | None) -> None:
        super().__init__(text)
        self._trace = trace

    def getStackTrace(self) -> str | None:  # noqa: N802
        return self._trace


class OfADeadMachine(Exception):
    """py4j asks Java how to print it."""

    def __str__(self) -> str:
        raise ConnectionRefusedError("the JVM is gone")


TRACES = {
    # Without a cause, which was told as the call that failed.
    f"java.io.IOException: no such folder\n{FRAMES}": "java.io.IOException: no such folder",
    # The deepest cause.
    f"java.lang.RuntimeException: Cannot commit rewrite\n{FRAMES}"
    f"Caused by: org.apache.iceberg.exceptions.ValidationException: Found new delete\n{FRAMES}": (
        "org.apache.iceberg.exceptions.ValidationException: Found new delete"
    ),
    # A cause that says nothing gives way to the one above it.
    f"java.lang.IllegalStateException: closed\n{FRAMES}Caused by: java.lang.NullPointerException\n{FRAMES}": (
        "java.lang.IllegalStateException: closed"
    ),
    f"java.lang.NullPointerException\n{FRAMES}": "java.lang.NullPointerException",
    # What was suppressed is no cause, nor are the causes of that.
    f"java.io.IOException: disk full\n{FRAMES}\tSuppressed: java.io.IOException: close failed\n\t\tat a.B.c(B.java)\n"
    "\tCaused by: java.lang.Error: of the suppressed\n": "java.io.IOException: disk full",
    # A wrapper repeats its cause.
    f"java.util.concurrent.ExecutionException: java.lang.Error: boom\n{FRAMES}Caused by: java.lang.Error: boom\n": (
        "java.lang.Error: boom"
    ),
    # Who refused the connection stands one above the refusal.
    "org.apache.iceberg.exceptions.RESTException: Error occurred while processing GET request\n"
    f"{FRAMES}Caused by: org.apache.hc.HttpHostConnectException: Connect to http://h:1 failed: Connection refused\n"
    f"{FRAMES}Caused by: java.net.ConnectException: Connection refused\n{FRAMES}": (
        "org.apache.iceberg.exceptions.RESTException: Error occurred while processing GET request; caused by "
        "org.apache.hc.HttpHostConnectException: Connect to http://h:1 failed: Connection refused"
    ),
    # Which file is missing is known to Iceberg and not to the storage's client.
    f"org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed\n{FRAMES}"
    f"Caused by: org.apache.iceberg.exceptions.NotFoundException: Location does not exist: s3://b/k\n{FRAMES}"
    f"Caused by: software.amazon.NoSuchKeyException: The key does not exist (Service: S3)\n{FRAMES}": (
        "org.apache.iceberg.exceptions.NotFoundException: Location does not exist: s3://b/k; caused by "
        "software.amazon.NoSuchKeyException: The key does not exist (Service: S3)"
    ),
    # An executor's exception that only the message of the stage tells.
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most "
    "recent failure: Lost task 3.3 in stage 1.0 (TID 9) (host executor): java.lang.OutOfMemoryError: Java heap space\n"
    f"{FRAMES}\nDriver stacktrace:\n{FRAMES}": "java.lang.OutOfMemoryError: Java heap space",
    # A condition of Spark needs no class; the statement and its plan are left out.
    "org.apache.spark.sql.catalyst.ExtendedAnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The table `a` is not there. "
    f"SQLSTATE: 42P01; line 1 pos 14;\n'Project [*]\n+- 'UnresolvedRelation [a]\n\n{FRAMES}": (
        "[TABLE_OR_VIEW_NOT_FOUND] The table `a` is not there. SQLSTATE: 42P01; line 1 pos 14;"
    ),
    f"org.apache.spark.sql.catalyst.parser.ParseException: \n[PARSE_SYNTAX_ERROR] at 'x'.\n\n== SQL ==\nx\n{FRAMES}": (
        "[PARSE_SYNTAX_ERROR] at 'x'."
    ),
    # Python on an executor.
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    f'  File "/x/worker.py", line 1, in main\nValueError: not a number\n\n{FRAMES}': (
        "org.apache.spark.api.python.PythonException: ValueError: not a number"
    ),
    f"java.lang.IllegalArgumentException: Both of these are set:\n  a and b\n{FRAMES}": (
        "java.lang.IllegalArgumentException: Both of these are set: a and b"
    ),
}


@pytest.mark.parametrize(("trace", "said"), TRACES.items())
def test_the_reason_is_the_deepest_cause_that_says_something(trace: str, said: str) -> None:
    assert failure_reason(RuntimeError(CALLING + trace)) == said
    assert failure_reason(Captured("short", trace)) == said
    assert failure_reason(OverConnect("short", trace)) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("  first\nsecond"), "first"),
        (ValueError(), "ValueError"),
        (OfADeadMachine(), "OfADeadMachine"),
        (OverConnect("(java.lang.RuntimeException) boom", None), "java.lang.RuntimeException: boom"),
        (
            OverConnect('<_MultiThreadedRendezvous of RPC:\n\tstatus = X\n\tdetails = "failed to connect"\n>', None),
            "failed to connect",
        ),
        (RuntimeError("no such table\n'Project [*]"), "no such table"),
    ],
)
def test_an_error_without_a_trace_is_told_by_what_it_says(error: Exception, said: str) -> None:
    assert failure_reason(error) == said


def test_a_reason_is_not_longer_than_a_screen() -> None:
    assert len(failure_reason(ValueError("x" * 10_000))) == 500
    assert len(failure_reason(RuntimeError(f"{CALLING}java.lang.Error: {'x' * 10_000}\n{FRAMES}"))) == 500


def test_the_whole_chain_is_there_for_whoever_decides_by_it() -> None:
    trace = f"{CALLING}java.lang.RuntimeException: outer\n{FRAMES}Caused by: a.b.Inner: deep\n{FRAMES}"

    assert [each.name for each in throwables(RuntimeError(trace))] == ["java.lang.RuntimeException", "a.b.Inner"]
