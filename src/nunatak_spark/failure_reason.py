"""Why something failed, in one line: the Java exception behind what py4j, Spark and Spark Connect raise.

Each of them tells the Java exception and its causes in another place. All of them print it as Java does, so one reader
of printed stack traces serves all, also after the JVM is gone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nunatak_spark.redaction import redact_text

LONGEST = 500  # characters
CLASS_NAME = r"(?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*"
HEADER = re.compile(rf"(?:: |Caused by: )?(?P<name>{CLASS_NAME})(?:: (?P<message>.*))?\s*")
CONNECT_HEADER = re.compile(rf"\((?P<name>{CLASS_NAME})\) (?P<message>.*)")  # without details from the server
FRAME = re.compile(r"\s+(?:at |\.\.\. \d+ )|\s+Suppressed: ")  # ends the message, which may have several lines
# Without a cause of its own where the executor's exception could not be sent to the driver.
TASK_FAILURE = re.compile(
    rf"most recent failure: [^\n]*?\(TID \d+\)[^\n]*?: (?P<name>{CLASS_NAME})(?:: (?P<message>.*))?", re.DOTALL
)
GRPC_DETAILS = re.compile(r'details = "(?P<message>[^\n]*)"')
CONDITION = re.compile(r"\[[A-Z0-9_.]+\] ")  # Spark's own name of an error, which says more than the class
ICEBERG = "org.apache.iceberg."


@dataclass(frozen=True)
class Throwable:
    """A Java exception: its class, and its message as it was printed."""

    name: str
    message: str

    @property
    def line(self) -> str:
        """The line of the message that says what is wrong."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        if not lines:
            return ""
        if lines[0].startswith("Traceback (most recent call last)"):
            return lines[-1]
        return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]

    def __str__(self) -> str:
        return self.line if CONDITION.match(self.line) else f"{self.name}: {self.line}" if self.line else self.name


def failure_reason(error: BaseException) -> str:
    """The deepest Java cause that has a message, with its class; of any other error the first line. Without secrets."""
    found = list(throwables(error))
    return redact_text(_reason(found) if found else _first_line(error))[
        :LONGEST
    ]  # cut afterwards: half a secret is one


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in safe_str(error).splitlines() if line.strip()]
    details = GRPC_DETAILS.search("\n".join(lines))
    if details:
        return details["message"]
    return lines[0] if lines else type(error).__name__


def throwables(error: BaseException) -> Iterator[Throwable]:
    """The Java exception and its causes, the outermost first; none if the error did not come from Java."""
    text = _stack_trace(error) or safe_str(error)
    last: Throwable | None = None
    for found in _parse_stack_trace(text):
        last = found
        yield found
    told = TASK_FAILURE.search(last.message) if last is not None else None
    if told:
        yield Throwable(told["name"], told["message"] or "")


def safe_str(error: BaseException) -> str:
    """`str(error)`; py4j asks the JVM for it, which may be gone."""
    try:
        return str(error)
    except Exception:
        return ""


def _stack_trace(error: BaseException) -> str:
    """What PySpark keeps of Java's own print: as an attribute, or over Spark Connect by a method."""
    kept = getattr(error, "_stackTrace", None)
    ask = getattr(error, "getStackTrace", None)
    found = kept if isinstance(kept, str) else ask() if callable(ask) else None
    return found if isinstance(found, str) else ""


def _parse_stack_trace(text: str) -> Iterator[Throwable]:
    name, message, in_message = "", [""], False
    for line in text.strip().splitlines():
        # Causes of suppressed exceptions are indented, and are not the reason.
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
    # The same words with more around them, such as the address that refused a connection. Spark adds task numbers.
    while told and _says_more(told[-1], deepest):
        deepest = told.pop()
    # Iceberg names the file or the table, where a storage client only says that something is missing.
    context = next((each for each in reversed(told) if each.name.startswith(ICEBERG)), None)
    if context is None or context.line in deepest.line or deepest.line in context.line:
        return str(deepest)
    return f"{context}; caused by {deepest}"


def _says_more(outer: Throwable, inner: Throwable) -> bool:
    is_wrapper = outer.line.endswith(f"{inner.name}: {inner.line}")
    return inner.line in outer.line and not is_wrapper and not outer.name.startswith("org.apache.spark.")
