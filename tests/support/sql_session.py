"""A stand-in for a Spark session without a JVM: settings, and the answer to a SELECT of one literal."""

from typing import Any


class Conf:
    """Settings of a session; `fixed` ones stay what they are, `locked` ones raise."""

    def __init__(self, fixed: dict[str, str], locked: tuple[str, ...]) -> None:
        self.values: dict[str, str] = dict(fixed)
        self._fixed, self._locked = fixed, locked

    def set(self, key: str, value: str) -> None:
        if key in self._locked:
            raise ValueError(f"[CANNOT_MODIFY_CONFIG] {key}\nat org.apache.spark")
        if key not in self._fixed:
            self.values[key] = value

    def get(self, key: str, default: str | None) -> str | None:
        return self.values.get(key, default)


class Frame:
    def __init__(self, value: str) -> None:
        self._value = value

    def collect(self) -> list[tuple[str]]:
        return [(self._value,)]


class Session:
    """What `protect_sql_text` uses of one; it answers a SELECT of a literal after `change` has been at the text."""

    def __init__(self, fixed: dict[str, str] | None = None, locked: tuple[str, ...] = (), change: Any = str) -> None:
        self.conf = Conf(fixed or {}, locked)
        self.statements: list[str] = []
        self._change = change

    def sql(self, statement: str) -> Frame:
        self.statements.append(statement)
        text = statement.removeprefix("SELECT '").removesuffix("' AS probe")
        return Frame(self._change(text.replace("\\'", "'").replace("\\\\", "\\")))
