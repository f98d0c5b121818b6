"""Returns the cause of a failure in one line: the Java exception behind what py4j, Spark and Spark Connect raise.

Each of them keeps the Java exception in another place, but all of them print it as Java does. So one parser of printed
stack traces works for all of them, also after the JVM has died.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nunatak_spark.redaction import redact_text

LONGEST = 500  # characters
CLASS_NAME = r"(?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*"
HEADER = re.compile(rf"(?:: |Caused by: )?(?P<name>{CLASS_NAME})(?:: (?P<message>.*))?\s*")
CONNECT_HEADER = re.compile(rf"\((?P<name>{CLASS_NAME})\) (?P<message>.*)")  # without details from the server
FRAME = re.compile(r"\s+(?:at |\.\.\. \d+ )|\s+Suppressed: ")  # ends a message, which may span several lines
# The cause is only in this text if the executor's exception could not be serialized to the driver.
TASK_FAILURE = re.compile(
    rf"most recent failure: [^\n]*?\(TID \d+\)[^\n]*?: (?P<name>{CLASS_NAME})(?:: (?P<message>.*))?", re.DOTALL
)
GRPC_DETAILS = re.compile(r'details = "(?P<message>[^\n]*)"')
CONDITION = re.compile(r"\[[A-Z0-9_.]+\] ")  # Spark's error condition, which says more than the class
ICEBERG = "org.apache.iceberg."


@dataclass(frozen=True)
class Throwable:
    """A Java exception: class name and printed message."""

    name: str
    message: str

    @property
    def line(self) -> str:
        """The most informative line of the message."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        if not lines:
            return ""
        if lines[0].startswith("Traceback (most recent call last)"):
            return lines[-1]
        return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]

    def __str__(self) -> str:
        return self.line if CONDITION.match(self.line) else f"{self.name}: {self.line}" if self.line else self.name


def failure_reason(error: BaseException) -> str:
    """Returns the deepest Java cause that has a message, with its class; for other errors the first line. Redacted."""
    found = list(throwables(error))
    return redact_text(_reason(found) if found else _first_line(error))[
        :LONGEST
    ]  # redact before cutting: half a secret is still a secret


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in safe_str(error).splitlines() if line.strip()]
    details = GRPC_DETAILS.search("\n".join(lines))
    if details:
        return details["message"]
    return lines[0] if lines else type(error).__name__


def throwables(error: BaseException) -> Iterator[Throwable]:
    """Yields the Java exception and its causes, the outermost first; nothing if the error did not come from Java."""
    text = _stack_trace(error) or safe_str(error)
    last: Throwable | None = None
    for found in _parse_stack_trace(text):
        last = found
        yield found
    told = TASK_FAILURE.search(last.message) if last is not None else None
    if told:
        yield Throwable(told["name"], told["message"] or "")


def safe_str(error: BaseException) -> str:
    """Returns `str(error)`. py4j asks the JVM for the text; if the JVM is gone, returns an empty text."""
    try:
        return str(error)
    except Exception:
        return ""


def _stack_trace(error: BaseException) -> str:
    """Returns the Java stack trace that PySpark keeps: an attribute, or a method over Spark Connect."""
    kept = getattr(error, "_stackTrace", None)
    ask = getattr(error, "getStackTrace", None)
    found = kept if isinstance(kept, str) else ask() if callable(ask) else None
    return found if isinstance(found, str) else ""


def _parse_stack_trace(text: str) -> Iterator[Throwable]:
    name, message, in_message = "", [""], False
    for line in text.strip().splitlines():
        # Causes of suppressed exceptions are indented; they are not the reason of the failure.
        header = HEADER.fullmatch(line) if not name or line.startswith("Caused by: ") else None
        header = header or (CONNECT_HEADER.fullmatch(line) if not name else None)
        if header:
            if name:
                yield Throwable(name, "\n".join(message))
            name, message, in_message = header["name"], [header["message"] or ""], True
        elif in_message and not FRAME.match(line):
            message.append(line)
        else:
            in_message = False
    if name:
        yield Throwable(name, "\n".join(message))


def _reason(found: list[Throwable]) -> str:
    told = [each for each in found if each.line] or found[-1:]
    deepest = told.pop()
    # Prefer an outer exception with the same text and more, such as the address that refused a connection.
    # Spark's own wrappers only add task numbers.
    while told and _says_more(told[-1], deepest):
        deepest = told.pop()
    # Iceberg names the file or table; a storage client often only says that something is missing.
    context = next((each for each in reversed(told) if each.name.startswith(ICEBERG)), None)
    if context is None or context.line in deepest.line or deepest.line in context.line:
        return str(deepest)
    return f"{context}; caused by {deepest}"


def _says_more(outer: Throwable, inner: Throwable) -> bool:
    is_wrapper = outer.line.endswith(f"{inner.name}: {inner.line}")
    return inner.line in outer.line and not is_wrapper and not outer.name.startswith("org.apache.spark.")
