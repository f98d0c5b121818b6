"""The command line, with a compaction that commits after every few files as it otherwise does after gigabytes."""

from nunatak.cli.main import main
from nunatak_spark.maintenance import compaction_plan

if __name__ == "__main__":
    compaction_plan.COMMIT_BYTES = 1
    main()
