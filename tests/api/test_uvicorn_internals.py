"""uvicorn's internals as our transport uses them: an upgrade that changes one is named here, not by a broken server."""

import ast
import asyncio
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from packaging.requirements import Requirement

from nunatak.api.transport import exchange, protocol, uvicorn_internals
from nunatak.api.transport.exchange import Exchange, StreamedExchange
from nunatak.api.transport.uvicorn_internals import (
    ATTRIBUTES,
    CYCLE_ATTRIBUTES,
    METHODS,
    FlowControl,
    HttpToolsProtocol,
    ServerState,
)

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "nunatak"


def changed_methods() -> Iterator[str]:
    for owner, methods in METHODS.items():
        for name, wanted in methods.items():
            method = getattr(owner, name, None)
            if method is None:
                yield f"{owner.__name__}.{name} is gone"
            elif (found := tuple(inspect.signature(method).parameters)) != wanted:
                yield f"{owner.__name__}.{name} takes {found}, not {wanted}"


def made(owner: type) -> Any:
    """A new instance."""
    config = uvicorn.Config(lambda: None, interface="asgi3", log_config=None, lifespan="off", ws="none")
    if owner is HttpToolsProtocol:
        loop = asyncio.new_event_loop()
        try:
            return HttpToolsProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        finally:
            loop.close()
    makers: dict[type, Callable[[], Any]] = {
        FlowControl: lambda: FlowControl(asyncio.Transport()),
        ServerState: ServerState,
        uvicorn.Server: lambda: uvicorn.Server(config),
        uvicorn.Config: lambda: config,
    }
    return makers[owner]()


def changed_attributes() -> Iterator[str]:
    for owner, names in ATTRIBUTES.items():
        instance = made(owner)
        yield from (f"{owner.__name__}.{name} is gone" for name in names if not hasattr(instance, name))


def cycle_attributes(source: str) -> set[str]:
    """What a protocol reads and sets of `self.cycle`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self.cycle"
    }


def test_uvicorn_is_as_the_transport_expects_it() -> None:
    assert [*changed_methods(), *changed_attributes()] == [], f"uvicorn {uvicorn.__version__} changed an internal"


def test_uvicorn_asks_of_a_cycle_only_what_ours_has() -> None:
    kept = (HttpToolsProtocol.connection_lost, HttpToolsProtocol.shutdown, HttpToolsProtocol.data_received)
    asked = set().union(*(cycle_attributes(inspect.cleandoc("\n" + inspect.getsource(each))) for each in kept))

    assert asked <= CYCLE_ATTRIBUTES, f"uvicorn {uvicorn.__version__} asks more of the cycle of a request"
    for kind in (Exchange, StreamedExchange):
        assert all(hasattr(kind, name) for name in CYCLE_ATTRIBUTES)


def test_a_changed_internal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself."""
    monkeypatch.delattr(HttpToolsProtocol, "send_400_response")
    monkeypatch.setattr(HttpToolsProtocol, "on_header", lambda self, field: None)
    monkeypatch.setitem(ATTRIBUTES, ServerState, ("total_requests", "requests"))

    assert list(changed_methods()) == [
        "HttpToolsProtocol.on_header takes ('self', 'field'), not ('self', 'name', 'value')",
        "HttpToolsProtocol.send_400_response is gone",
    ]
    assert list(changed_attributes()) == ["ServerState.requests is gone"]


def used_of_uvicorn(module: Any) -> set[str]:
    """Names of `self` in the protocol, and of its flow control, that no class of ours defines."""
    tree = ast.parse(inspect.getsource(module))
    (ours,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "CatalogProtocol"]
    own = {node.name for node in ours.body if isinstance(node, ast.FunctionDef)}
    for statement in ours.body:
        if isinstance(statement, ast.AnnAssign):
            own.add(ast.unparse(statement.target))
        elif isinstance(statement, ast.Assign):
            own |= {ast.unparse(target) for target in statement.targets}
    read = {
        node.attr
        for node in ast.walk(ours)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()")
    }
    return read - (own - set(METHODS[HttpToolsProtocol]))


def test_the_list_is_complete() -> None:
    listed = {*METHODS[HttpToolsProtocol], *ATTRIBUTES[HttpToolsProtocol]}

    assert used_of_uvicorn(protocol) - listed == {"url"}, "list it in uvicorn_internals.py"  # set by us as by uvicorn
    flow = set(re.findall(r"\bflow\.([a-z_]+)", inspect.getsource(protocol) + inspect.getsource(exchange)))
    assert flow <= {*METHODS[FlowControl], *ATTRIBUTES[FlowControl]}


def test_no_other_module_imports_uvicorn() -> None:
    importing = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if re.search(r"^\s*(?:from|import) uvicorn", file.read_text("utf-8"), re.MULTILINE)
    }

    assert importing == {"api/transport/http_server.py", "api/transport/uvicorn_internals.py"}
    served = (SOURCE / "api/transport/http_server.py").read_text("utf-8")
    assert not re.search(r"from uvicorn|import uvicorn\.", served), "only its public API"


def test_the_version_is_bounded() -> None:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    (wanted,) = [each for each in map(Requirement, written) if each.name == "uvicorn"]

    assert any(each.operator in ("<", "<=", "==") for each in wanted.specifier)
    assert wanted.specifier.contains(uvicorn.__version__)
    assert uvicorn_internals.__doc__ is not None
