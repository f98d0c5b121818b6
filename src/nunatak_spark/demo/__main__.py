"""`python -m nunatak_spark.demo`: reports missing packages before it imports them."""

import importlib
import importlib.util
import sys

NEEDED = ("pyspark", "pyiceberg", "pyarrow", "duckdb", "duckdb_extension_iceberg", "jinja2")
INSTALL = "'nunatak[migration]' 'pyiceberg[pyiceberg-core]'"


def main() -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"The demo needs packages that are missing: {', '.join(missing)}", file=sys.stderr)
        print(f"Fix: pip install {INSTALL}, or `make demo` in the project's folder.", file=sys.stderr)
        return 3
    importlib.import_module("nunatak_spark.demo.command").demo(prog_name="python -m nunatak_spark.demo")
    return 0


if __name__ == "__main__":
    sys.exit(main())
