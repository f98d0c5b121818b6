"""Which properties name Java classes, and that no job goes on with them."""

import pytest

from nunatak_spark.maintenance.java_class_names import names_class, refuse_catalog_classes, refuse_class_names
from nunatak_spark.maintenance.job_context import JobRefused


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("io-impl", "com.example.Evil"),
        ("IO-IMPL", "x"),
        ("write.location-provider.impl", "com.example.Evil"),
        ("write.location-provider.impl", "org.apache.iceberg.LocationProviders$DefaultLocationProvider"),
        ("write.something.new.impl", "Evil"),
        ("encryption.kms-impl", "com.example.Evil"),
        ("metrics-reporter-impl", "com.example.Evil"),
        ("catalog-impl", "com.example.Evil"),
        ("lock-impl", "com.example.Evil"),
        ("rest.client.tls.configurer-impl", "com.example.Evil"),
        ("s3.client-factory-impl", "com.example.Evil"),
        ("client.factory", "com.example.Evil"),
        ("client.credentials-provider", "com.example.Evil"),
        ("adls.token-credential-provider", "com.example.Evil"),
        ("parquet.crypto.factory.class", "com.example.Evil"),
        ("parquet.encryption.kms.client.class", "com.example.Evil"),
        ("fs.evil.impl", "com.example.Evil"),
        ("fs.AbstractFileSystem.evil.impl", "com.example.Evil"),
        ("io.compression.codecs", "com.example.Evil"),
        ("io.serializations", "com.example.Evil"),
        ("orc.anything", " com.example.deep.Evil "),
        ("rest.auth.type", "com.example.auth.Evil"),
        ("hadoop.security.group.mapping", "com.example.security.Evil,com.example.Other"),
        ("write.metadata.metrics.column.x", "com.example.deep.Evil"),
    ],
)
def test_a_table_with_a_property_that_names_a_class_is_refused(key: str, value: str) -> None:
    with pytest.raises(JobRefused, match="names a Java class"):
        refuse_class_names("a.t", {"metadata": {"properties": {"owner": "ada", key: value}}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("owner", "com.example.team.Ada"),
        ("comment", "written by com.example.Job"),
        ("storage_handler", "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"),
        ("write.format.default", "parquet"),
        ("write.metadata.metrics.column.impl", "full"),
        ("write.parquet.bloom-filter-enabled.column.a.class", "true"),
        ("write.parquet.compression-codec", "zstd"),
        ("write.data.path", "s3://bucket/data.v1.Files"),
        ("s3.write.storage-class", "STANDARD_IA"),
        ("write.target-file-size-bytes", "1"),
        ("implementation", "x"),
        ("simpl", "x"),
        ("rest.auth.type", "oauth2"),
    ],
)
def test_other_properties_pass(key: str, value: str) -> None:
    assert not names_class(key, value)
    refuse_class_names("a.t", {"metadata": {"properties": {key: value}}, "config": {}})


def test_a_catalog_may_name_classes_of_iceberg_and_no_others() -> None:
    refuse_catalog_classes({"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": "http://127.0.0.1:9000"})

    for value in ("com.example.Evil", "org.apache.icebergs.Evil", "org.apache.iceberg.X, com.example.Evil"):
        with pytest.raises(JobRefused, match="io-impl"):
            refuse_catalog_classes({"io-impl": value})
        with pytest.raises(JobRefused, match="io-impl"):
            refuse_class_names("a.t", {"metadata": {}, "config": {"io-impl": value}})


@pytest.mark.parametrize("value", ["${env.NUNATAK_TOKEN}", "x${user.home}", "${env.A-${env.B}}"])
def test_a_value_that_hadoop_would_replace_is_refused(value: str) -> None:
    with pytest.raises(JobRefused, match=r"zstd\.level with a variable"):
        refuse_class_names("a.t", {"metadata": {"properties": {"parquet.compression.codec.zstd.level": value}}})

    refuse_class_names("a.t", {"metadata": {"properties": {"comment": value}}})
