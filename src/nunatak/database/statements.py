"""The named SQL statements of `queries/*.sql`, read once: a name, what is special about it, and the SQL."""

import re
from importlib import resources

_NAME = re.compile(r"^-- ([a-z_]+)$", re.MULTILINE)


def read_statements() -> dict[str, str]:
    """All statements by name."""
    found: dict[str, str] = {}
    for file in sorted(resources.files(__package__).joinpath("queries").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        parts = _NAME.split(file.read_text("utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"two statements are named {name}")
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            found[name] = "\n".join(lines).strip()
    return found


def read_migrations() -> list[tuple[int, str, str]]:
    """Number, name and SQL of every migration, in order."""
    found = []
    for file in resources.files(__package__).joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            name = file.name.removesuffix(".sql")
            found.append((int(name[:4]), name, file.read_text("utf-8")))
    return sorted(found)
