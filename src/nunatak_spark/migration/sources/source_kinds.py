"""A source as something that can be asked: the one place that knows every kind."""

from collections.abc import Mapping

from nunatak_spark.migration.model import Source, SourceKind
from nunatak_spark.migration.source_files import Spark
from nunatak_spark.migration.sources.folder import FileFolder
from nunatak_spark.migration.sources.glue import Glue
from nunatak_spark.migration.sources.hadoop import Hadoop
from nunatak_spark.migration.sources.hive import Hive
from nunatak_spark.migration.sources.jdbc import Jdbc
from nunatak_spark.migration.sources.rest import Rest
from nunatak_spark.migration.sources.source_catalog import Origin, secrets_of

KINDS: Mapping[SourceKind, type[Hive | Glue | Jdbc | Hadoop | Rest | FileFolder]] = {
    "hive": Hive,
    "glue": Glue,
    "jdbc": Jdbc,
    "hadoop": Hadoop,
    "rest": Rest,
    "folder": FileFolder,
}


def open_origin(source: Source, spark: Spark, environment: Mapping[str, str]) -> Origin:
    return KINDS[source.kind](source, spark, secrets_of(source, environment))
