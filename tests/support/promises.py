"""What a fault test saw, as one line for people and, in a soak, one line of JSON for the reliability report."""

import json
import os

FIGURES_VARIABLE = "NUNATAK_TEST_FIGURES"  # the file that collects the lines; unset outside a soak


def show(fault: str, promise: str, **figures: int | float | str) -> None:
    """Say what was seen: `show("F2", "two servers, either killed: nothing lost", commits=812, kills=10, seed=seed)`."""
    print(f"{fault}: {promise}: " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items()))
    target = os.environ.get(FIGURES_VARIABLE)
    if target:
        with open(target, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({"fault": fault, "promise": promise, "figures": figures}) + "\n")
