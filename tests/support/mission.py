"""Which behaviours of the mission a test names in its docstring; `make mission` prints it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
IDS = TESTS / "mission" / "ids.toml"
_CITED = re.compile(r"\b\d{3}-\d{2}\b(?!-)")


@dataclass(frozen=True)
class Citation:
    """One id in the docstring of one test."""

    mission_id: str
    test: str


def known() -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
    """The seeds and the ids of the mission, each with its short title, and what is missing of some ids."""
    with IDS.open("rb") as file:
        document = tomllib.load(file)
    return document["seeds"], document["ids"], document["missing"]


def citations(folder: Path) -> Iterator[Citation]:
    """Every id that a test below `folder` names."""
    for file in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for mission_id in _CITED.findall(ast.get_docstring(node) or ""):
                    yield Citation(mission_id, f"{file.relative_to(folder)}::{node.name}")


def report(
    seeds: Mapping[str, str], ids: Mapping[str, str], missing: Mapping[str, str], cited: Mapping[str, list[str]]
) -> Iterator[str]:
    for seed, title in seeds.items():
        of_seed = [mission_id for mission_id in ids if mission_id.startswith(f"{seed}-")]
        tested = [mission_id for mission_id in of_seed if mission_id in cited]
        yield f"{seed}  {title}: {len(tested)} of {len(of_seed)} have a test"
        for mission_id in tested:
            count = len(cited[mission_id])
            lacks = f"; not yet: {missing[mission_id]}" if mission_id in missing else ""
            yield f"  {mission_id}  {ids[mission_id]}  ({count} test{'s' if count > 1 else ''}{lacks})"
        if len(tested) < len(of_seed):
            yield "  without a test:"
            yield from (f"    {mission_id}  {ids[mission_id]}" for mission_id in of_seed if mission_id not in cited)
        yield ""
    total = sum(mission_id in cited for mission_id in ids)
    parts = sum(mission_id in cited for mission_id in missing)
    yield f"{total} of {len(ids)} have a test, {parts} of these for a part"


def main() -> int:
    """Print the report; 1 if a test, or what is missing, names an id that the mission does not know."""
    seeds, ids, missing = known()
    cited: dict[str, list[str]] = {}
    for citation in citations(TESTS):
        cited.setdefault(citation.mission_id, []).append(citation.test)
    print("\n".join(report(seeds, ids, missing, cited)))
    unknown = sorted((cited.keys() | missing.keys()) - ids.keys())
    for mission_id in unknown:
        print(f"unknown id {mission_id}, named by {', '.join(cited.get(mission_id, [IDS.name]))}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
