"""Creates a Spark session for the catalog, or adds the catalog to a user's builder or session."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nunatak_spark.configuration import (
    CATALOG_CLASS,
    EXTENSIONS,
    EXTENSIONS_CLASS,
    JARS,
    REDACTED,
    CatalogConfig,
    catalog_config,
    existing_settings,
    is_resolved_by_spark,
    jar_settings,
    missing_settings,
    quiet_settings,
    submit_settings,
)
from nunatak_spark.errors import ConfigurationConflict, JarNotFound
from nunatak_spark.installation import GATEWAY, Installation, find_installation, import_pyspark, require_connect
from nunatak_spark.jars import jar_locations, load_jar
from nunatak_spark.redaction import remember_secret
from nunatak_spark.sql_text import REQUIRED_SETTINGS, protect_sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    uri: str | None = None,
    *,
    warehouse: str | None = None,
    token: str | None = None,
    credential: str | None = None,
    catalog: str = "lake",
    master: str | None = None,
    remote: str | None = None,
    bundles: Sequence[str] = (),
    jars: Sequence[str | Path] = (),
    config: Mapping[str, str] | None = None,
    app_name: str = "nunatak",
) -> "SparkSession":
    """Returns a session in which `catalog` is the Nunatak at `uri`; checks this machine before a JVM starts.

    Without `master`, Spark's configuration decides, else all cores of this machine are used. With `remote` (sc://…) or
    SPARK_REMOTE it is a session of a Spark Connect server, which brings its own jars. If a session runs already, the
    catalog is added to it. Secrets are set in the running JVM and never appear on its command line.
    """
    wanted = catalog_config(os.environ, uri, name=catalog, warehouse=warehouse, token=token, credential=credential)
    if master and remote:
        raise ConfigurationConflict(
            "master and remote were given", fix="Give one of them: remote is for Spark Connect."
        )
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it logs 20 kB of JSON per failed statement
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    spark = (
        _remote_session(remote, config or {})
        if remote
        else _classic_session(wanted, master, tuple(bundles), jars, config or {}, app_name)
    )
    add_catalog(spark, wanted)
    return spark


def configure(
    builder: Any,
    uri: str | None = None,
    *,
    warehouse: str | None = None,
    token: str | None = None,
    credential: str | None = None,
    catalog: str = "lake",
    bundles: Sequence[str] = (),
    jars: Sequence[str | Path] = (),
) -> Any:
    """Returns the builder with the jars, the extensions and the catalog added; keeps all existing settings.

    A token or credential becomes part of the JVM's command line, which every user of the machine can read. If that
    matters, leave it out and call `add_catalog` on the session.
    """
    wanted = catalog_config(os.environ, uri, name=catalog, warehouse=warehouse, token=token, credential=credential)
    return _configure_builder(builder, wanted, find_installation(os.environ), tuple(bundles), jars, secrets=True)


def add_catalog(spark: "SparkSession", catalog: CatalogConfig) -> None:
    """Adds the catalog to a running session; Spark reads its settings on first use.

    Also turns off variable substitution: `${…}` in SQL text of the session is taken literally from now on.
    """
    protect_sql_text(spark)
    remember_secret(catalog.token, catalog.credential)
    settings = {**catalog.settings(), **catalog.secrets()}
    present = {key: value for key in settings if (value := spark.conf.get(key, None)) is not None}
    for key, value in missing_settings(present, settings).items():
        spark.conf.set(key, value)


def _remote_session(remote: str, config: Mapping[str, str]) -> "SparkSession":
    require_connect()
    spark: SparkSession = import_pyspark("pyspark.sql").SparkSession.builder.remote(remote).getOrCreate()
    for key, value in {"spark.sql.session.timeZone": "UTC", **config}.items():
        spark.conf.set(key, value)
    return spark


def _classic_session(
    catalog: CatalogConfig,
    master: str | None,
    bundles: tuple[str, ...],
    jars: Sequence[str | Path],
    config: Mapping[str, str],
    app_name: str,
) -> "SparkSession":
    installation = find_installation(os.environ)
    builder = import_pyspark("pyspark.sql").SparkSession.builder
    if import_pyspark("pyspark").SparkContext._active_spark_context is not None:
        spark: SparkSession = builder.config(map=dict(config)).getOrCreate()
    else:
        present = _existing_settings(installation)
        for key, value in config.items():
            builder = builder.config(key, value)
        chosen = master or config.get("spark.master") or present.get("spark.master") or "local[*]"
        defaults = {"spark.app.name": app_name, **quiet_settings(chosen)}
        builder = builder.config(map=missing_settings({**present, **config}, defaults)).config("spark.master", chosen)
        builder = _configure_builder(builder, catalog, installation, bundles, jars, secrets=False)
        with _jvm_environment(installation, chosen):
            spark = builder.getOrCreate()
    _require_runtime(spark, installation)
    return spark


def _configure_builder(
    builder: Any,
    catalog: CatalogConfig,
    installation: Installation,
    bundles: tuple[str, ...],
    jars: Sequence[str | Path],
    *,
    secrets: bool,
) -> Any:
    # Appending to lists needs the builder's options, which have no public accessor; the same in 3.5 and 4.1.
    present = {**_existing_settings(installation), **{key: str(value) for key, value in builder._options.items()}}
    places = jar_locations(os.environ, named=jars, spark_home=installation.spark_home)
    wanted_jars = [jar for jar in installation.spark.chosen_jars(bundles) if not is_resolved_by_spark(present, jar)]
    found = [load_jar(jar, places) for jar in wanted_jars]
    ours = {one.path for one in found}
    extra = [path for path in places.named if path.is_file() and path not in ours]
    paths = jar_settings(present, installation.spark, found, extra)
    _refuse_submitted_jars(paths)
    wanted = {
        **({JARS: ",".join(paths)} if paths else {}),
        EXTENSIONS: EXTENSIONS_CLASS,
        "spark.redaction.regex": REDACTED,
        **catalog.settings(),
        **(catalog.secrets() if secrets else {}),
    }
    # REQUIRED_SETTINGS also go into the application's configuration, which further sessions inherit; they win.
    return builder.config(map={**missing_settings(present, wanted), **REQUIRED_SETTINGS})


def _existing_settings(installation: Installation) -> dict[str, str]:
    """Returns what was set before the program: by files, PYSPARK_SUBMIT_ARGS or a running JVM."""
    if installation.java_home is not None:
        return existing_settings(os.environ, installation.spark_home)
    pyspark = import_pyspark("pyspark")
    pyspark.SparkContext._ensure_initialized()  # the JVM of spark-submit has all settings, also those of the cluster
    return dict(pyspark.SparkConf().getAll())


def _refuse_submitted_jars(paths: list[str]) -> None:
    """Raises ConfigurationConflict if PYSPARK_SUBMIT_ARGS has --jars without ours: spark-submit would drop
    the builder's jars.
    """
    submitted, _ = submit_settings(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    missing = [path for path in paths if path not in submitted[JARS].split(",")] if JARS in submitted else []
    if missing:
        raise ConfigurationConflict(
            "PYSPARK_SUBMIT_ARGS names --jars, which hides the jars that are added here",
            fix=f"Add {','.join(missing)} to it, or move its jars into spark.jars.",
        )


@contextlib.contextmanager
def _jvm_environment(installation: Installation, master: str) -> Iterator[None]:
    """Sets the environment variables for starting a JVM; restores them afterwards."""
    wanted = {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable
    }  # otherwise executors may pick another Python
    if installation.java_home is not None:
        wanted["JAVA_HOME"] = str(installation.java_home)
    if master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _require_runtime(spark: "SparkSession", installation: Installation) -> None:
    """Raises JarNotFound if the JVM, which somebody else may have started, has no Iceberg runtime."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(CATALOG_CLASS, False, loader)
    except Exception as error:
        how = "spark-submit" if os.environ.get(GATEWAY) else "the session that runs already"
        raise JarNotFound(
            f"Iceberg's runtime is not on the class path of {how}",
            fix=f"Start it with --packages {installation.spark.runtime.coordinate}, or with --properties-file and what "
            "`nunatak spark conf` prints.",
        ) from error
