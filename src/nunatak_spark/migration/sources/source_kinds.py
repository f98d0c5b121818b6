"""Maps each kind of source to its catalog class."""

from collections.abc import Mapping

from nunatak_spark.migration.model import MigrationSource, SourceKind
from nunatak_spark.migration.source_files import StartSpark
from nunatak_spark.migration.sources.folder import FolderSourceCatalog
from nunatak_spark.migration.sources.glue import GlueSourceCatalog
from nunatak_spark.migration.sources.hadoop import HadoopSourceCatalog
from nunatak_spark.migration.sources.hive import HiveSourceCatalog
from nunatak_spark.migration.sources.jdbc import JdbcSourceCatalog
from nunatak_spark.migration.sources.rest import RestSourceCatalog
from nunatak_spark.migration.sources.source_catalog import SourceCatalog, source_secrets

SOURCE_CATALOGS: Mapping[
    SourceKind,
    type[
        HiveSourceCatalog
        | GlueSourceCatalog
        | JdbcSourceCatalog
        | HadoopSourceCatalog
        | RestSourceCatalog
        | FolderSourceCatalog
    ],
] = {
    "hive": HiveSourceCatalog,
    "glue": GlueSourceCatalog,
    "jdbc": JdbcSourceCatalog,
    "hadoop": HadoopSourceCatalog,
    "rest": RestSourceCatalog,
    "folder": FolderSourceCatalog,
}


def open_source_catalog(source: MigrationSource, spark: StartSpark, environment: Mapping[str, str]) -> SourceCatalog:
    return SOURCE_CATALOGS[source.kind](source, spark, source_secrets(source, environment))
