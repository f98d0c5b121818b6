"""Writes docs/reference from the code, so that the pages cannot say anything else: `make docs`."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from nunatak.access.privileges import Privilege
from nunatak.api.management_routes import MANAGEMENT_ROUTES
from nunatak.api.route import Route
from nunatak.api.routes import ROUTES
from nunatak.cli.config import format_setting
from nunatak.cli.main import root
from nunatak.errors import CatalogError
from nunatak.events.metrics import METRICS
from nunatak.settings import CONFIG_FILE, OTHER_VARIABLES, SETTINGS

REFERENCE = Path(__file__).parent / "reference"
NOTICE = "<!-- Made by `make docs`; change the code instead. -->"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def settings_page() -> str:
    rows = [
        (
            f"`{setting.name}`",
            f"`{setting.environment_variable}`",
            shown(setting.name, setting.default),
            setting.meaning,
        )
        for setting in SETTINGS
    ]
    return f"""\
# Settings

Each setting can be given as an environment variable or as a line in `{CONFIG_FILE}` in the current folder (or in
the file that `NUNATAK_CONFIG` names); some are flags of `nunatak serve` too. A flag beats the environment, which beats
the file, which beats the default. A name that is not in this list is an error, and so is a file that `NUNATAK_CONFIG`
names and that is not there. `nunatak config check` prints what is in effect and where it came from, and fails if the
server would not start with it.

{table(["setting", "variable", "default", "meaning"], rows)}
Commands that are no server read these as well:

{table(["variable", "meaning"], [(f"`{name}`", meaning) for name, meaning in OTHER_VARIABLES.items()])}"""


def shown(name: str, value: object) -> str:
    text = format_setting(name, value)
    return f"`{text}`" if text else "empty"


def cli_page() -> str:
    sections = "\n".join(f"## {path}\n\n```\n{help_text}\n```\n" for path, help_text in command_helps())
    return f"# Commands\n\n{sections}"


def command_helps() -> Iterator[tuple[str, str]]:
    top = click.Context(root, info_name="nunatak", terminal_width=100, max_content_width=100, **root.context_settings)
    yield "nunatak", root.get_help(top)
    for name in root.list_commands(top):
        command = root.get_command(top, name)
        assert command is not None
        context = click.Context(command, parent=top, info_name=name)
        yield f"nunatak {name}", command.get_help(context)
        for sub_name, sub in command.commands.items() if isinstance(command, click.Group) else ():
            yield f"nunatak {name} {sub_name}", sub.get_help(click.Context(sub, parent=context, info_name=sub_name))


def errors_page() -> str:
    rows = [
        (
            str(kind.status),
            f"`{kind.iceberg_type}`",
            meaning(kind),
            "yes" if kind.deterministic else "no",
        )
        for kind in sorted(error_tree(CatalogError), key=lambda kind: (kind.status, kind.iceberg_type))
    ]
    return f"""\
# Errors

Every refusal is JSON of this form, whatever was asked. Clients choose their reaction by status and type; `hint`, where
there is one, is for people.

```json
{{"error": {{"message": "Table does not exist: shop.orders", "type": "NoSuchTableException", "code": 404}}}}
```

“Replayed” says whether the answer is remembered for an `Idempotency-Key` and given again.

{table(["status", "type", "meaning", "replayed"], rows)}"""


def error_tree(kind: type[CatalogError]) -> Iterator[type[CatalogError]]:
    """What errors.py names; an inner layer may refine one for itself, and that never reaches the wire as a new type."""
    for child in kind.__subclasses__():
        if child.__module__ == CatalogError.__module__:
            yield child
            yield from error_tree(child)


def meaning(kind: type[CatalogError]) -> str:
    """What its docstring says, or else its name as words: NoSuchTable is "No such table."."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).capitalize()
    return " ".join(kind.__doc__.split()) if kind.__doc__ else f"{words}."


def routes_page() -> str:
    return f"""\
# Routes

`{{prefix}}` is the warehouse; it may be left out for the default one. The levels of a namespace are joined by `%1F`.
Every route is also served below `/iceberg`, `/apis/iceberg` and `/api/catalog`, and with a doubled `/v1`: clients are
configured that way. `GET /v1/config` lists the routes for programs. The whole API as an OpenAPI document is
`spec/rest-catalog.json`, written by `make openapi`.

{routes_table(ROUTES)}
## Management

Principals, roles, grants, credentials, warehouses and the audit trail; errors look as everywhere. Where CONFIG_READ is
enough, everybody who is known may ask, and gets what their own rights allow. The server offers the OpenAPI document at
`/management/v1/openapi.json`; it is also `spec/management.json`.

{routes_table(MANAGEMENT_ROUTES)}"""


def routes_table(routes: Sequence[Route]) -> str:
    rows = [
        (route.method, f"`{route.template}`", route.summary, f"`{route.operation}`", needed(route)) for route in routes
    ]
    return table(["method", "path", "what it does", "operation", "needs"], rows)


def needed(route: Route) -> str:
    """The privilege, and what it must be held on."""
    if route.privilege is Privilege.PUBLIC:
        return "nothing"
    return f"{route.privilege.name} on {route.securable.value}"


def metrics_page() -> str:
    rows = [(f"`{name}`", kind, meaning) for name, kind, meaning in METRICS]
    return f"""\
# Metrics

`GET /metrics` answers in Prometheus' text format. Besides these it has the usual figures of the process and of
Python.

{table(["metric", "kind", "meaning"], rows)}"""


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "routes.md": routes_page,
    "metrics.md": metrics_page,
}


def page(name: str) -> str:
    return f"{NOTICE}\n\n{PAGES[name]()}"


if __name__ == "__main__":
    for page_name in PAGES:
        (REFERENCE / page_name).write_text(page(page_name), "utf-8")
