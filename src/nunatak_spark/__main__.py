"""Entry point of `python -m nunatak_spark`, and the file to give to spark-submit."""

import sys
from pathlib import Path

# Run as a file, Python puts this folder first on sys.path. Its modules must only be importable through the package.
if sys.path and sys.path[0] == str(Path(__file__).parent):
    del sys.path[0]

from nunatak_spark.runner import main

if __name__ == "__main__":
    sys.exit(main())
