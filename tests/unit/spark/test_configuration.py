"""Settings are added to what a user has, and never put in its place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nunatak_spark.compatibility import compatibility_matrix
from nunatak_spark.configuration import (
    CATALOG_CLASS,
    EXTENSIONS,
    EXTENSIONS_CLASS,
    JARS,
    PACKAGES,
    CatalogConfig,
    catalog_config,
    existing_settings,
    format_properties,
    is_resolved_by_spark,
    jar_settings,
    missing_settings,
    parse_properties,
    quiet_settings,
    submit_settings,
)
from nunatak_spark.errors import CannotRun, ConfigurationConflict
from nunatak_spark.jars import FoundJar

SPARK = compatibility_matrix().spark("4.1")
RUNTIME = FoundJar(SPARK.runtime, Path("/cache") / SPARK.runtime.file_name)
URI = "http://127.0.0.1:8181"


# The catalog


def test_a_catalog_needs_three_settings() -> None:
    assert CatalogConfig(f"{URI}/").settings() == {
        "spark.sql.catalog.lake": CATALOG_CLASS,
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": URI,
    }


def test_a_warehouse_and_a_name_are_kept() -> None:
    settings = CatalogConfig(URI, "ice", "sales").settings()

    assert settings["spark.sql.catalog.ice.warehouse"] == "sales"


def test_secrets_stand_apart_and_are_not_printed() -> None:
    by_token, by_credential = CatalogConfig(URI, token="t0ps"), CatalogConfig(f"{URI}/v1", credential="me:t0ps")

    assert by_token.secrets() == {"spark.sql.catalog.lake.token": "t0ps"}
    assert by_credential.secrets() == {
        "spark.sql.catalog.lake.credential": "me:t0ps",
        "spark.sql.catalog.lake.oauth2-server-uri": f"{URI}/v1/oauth/tokens",
    }
    for catalog in (by_token, by_credential):
        assert "t0ps" not in repr(catalog)
        assert "t0ps" not in str(catalog.settings())


@pytest.mark.parametrize(
    "wrong",
    [
        {"uri": "127.0.0.1:8181"},
        {"uri": "ftp://host"},
        {"uri": URI, "name": "my lake"},
        {"uri": URI, "name": "a.b"},
        {"uri": URI, "token": "t", "credential": "a:b"},
        {"uri": URI, "credential": "without-a-colon"},
    ],
)
def test_a_catalog_that_cannot_be_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(CannotRun):
        CatalogConfig(**wrong)


def test_the_environment_completes_what_was_given() -> None:
    environment = {"NUNATAK_URI": "http://catalog:1", "NUNATAK_TOKEN": "t", "NUNATAK_CREDENTIAL": "a:b"}

    def of(uri: str | None, **given: str) -> CatalogConfig:
        both = {"token": None, "credential": None, **given}
        return catalog_config(environment, uri, name="lake", warehouse=None, **both)

    assert (of(None).uri, of(None).token, of(None).credential) == ("http://catalog:1", "t", None)
    assert of(URI).uri == URI
    assert (of(URI, credential="c:d").token, of(URI, credential="c:d").credential) == (None, "c:d")


# Adding


def test_lists_grow_and_keep_their_order() -> None:
    present = {JARS: "/mine.jar, /other.jar", EXTENSIONS: "com.example.Mine"}

    changes = missing_settings(present, {JARS: "/ours.jar,/mine.jar", EXTENSIONS: EXTENSIONS_CLASS})

    assert changes == {JARS: "/mine.jar,/other.jar,/ours.jar", EXTENSIONS: f"com.example.Mine,{EXTENSIONS_CLASS}"}


def test_what_the_user_set_stays() -> None:
    assert missing_settings({"spark.ui.enabled": "true"}, {"spark.ui.enabled": "false", "spark.a": "1"}) == {
        "spark.a": "1"
    }


def test_adding_twice_changes_nothing_more() -> None:
    wanted = {JARS: "/ours.jar", EXTENSIONS: EXTENSIONS_CLASS, **CatalogConfig(URI).settings()}

    assert missing_settings(wanted, wanted) == {}
    assert missing_settings({**wanted, JARS: "/a.jar,/ours.jar"}, wanted) == {}


def test_a_catalog_of_the_same_name_elsewhere_is_refused_without_naming_secrets() -> None:
    present = CatalogConfig("http://other:1").settings()

    with pytest.raises(ConfigurationConflict, match=r"spark\.sql\.catalog\.lake\.uri is already set"):
        missing_settings(present, CatalogConfig(URI).settings())
    with pytest.raises(ConfigurationConflict) as refusal:
        missing_settings({"spark.sql.catalog.lake.token": "old-t0ps"}, CatalogConfig(URI, token="t0ps").secrets())
    assert "t0ps" not in str(refusal.value)


KEYS = st.sampled_from([JARS, EXTENSIONS, PACKAGES, "spark.ui.enabled", "spark.app.name"])
ITEMS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True).map(",".join)


@given(present=st.dictionaries(KEYS, ITEMS), wanted=st.dictionaries(KEYS, ITEMS))
def test_nothing_is_ever_lost(present: dict[str, str], wanted: dict[str, str]) -> None:
    after = {**present, **missing_settings(present, wanted)}

    for key, value in present.items():
        assert set(value.split(",")) <= set(after[key].split(","))
    for key, value in wanted.items():
        if key in {JARS, EXTENSIONS, PACKAGES} or key not in present:
            assert set(value.split(",")) <= set(after[key].split(","))


# Jars


def test_our_jars_and_those_that_were_named_are_added() -> None:
    assert jar_settings({}, SPARK, [RUNTIME], [Path("/driver.jar")]) == [str(RUNTIME.path), "/driver.jar"]


def test_a_jar_that_lies_with_spark_is_not_added() -> None:
    assert jar_settings({}, SPARK, [FoundJar(SPARK.runtime, RUNTIME.path, with_spark=True)], []) == []


def test_a_jar_is_left_to_spark_where_packages_name_it() -> None:
    named = f"org.example:x:1, org.apache.iceberg:{SPARK.runtime.artifact}:1.11.0"

    assert is_resolved_by_spark({PACKAGES: named}, SPARK.runtime)
    assert not is_resolved_by_spark({PACKAGES: "org.example:x:1", JARS: "/a.jar"}, SPARK.runtime)


@pytest.mark.parametrize(
    "present",
    [
        {PACKAGES: "org.example:x:1,org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"},
        {JARS: "/opt/iceberg-spark-runtime-4.1_2.13-1.11.0.jar"},
    ],
)
def test_a_runtime_that_the_user_chose_is_not_joined_by_ours(present: dict[str, str]) -> None:
    assert jar_settings(present, SPARK, [RUNTIME], []) == []


@pytest.mark.parametrize(
    "present",
    [
        {PACKAGES: "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0"},
        {JARS: "/mine.jar,/opt/iceberg-spark-runtime-4.0_2.13-1.10.0.jar"},
    ],
)
def test_a_runtime_for_another_spark_is_refused(present: dict[str, str]) -> None:
    with pytest.raises(ConfigurationConflict, match=r"belongs to another Spark than 4\.1"):
        jar_settings(present, SPARK, [RUNTIME], [])


# What is set outside of the program


def test_defaults_are_read_and_submit_arguments_win(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.jars /a.jar\nspark.master local[3]\n# spark.x 1\n")
    environment = {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--master yarn --conf spark.a='b c' -c spark.d=e=f pyspark-shell",
    }

    assert existing_settings(environment, Path("/nowhere")) == {
        "spark.jars": "/a.jar",
        "spark.master": "yarn",
        "spark.a": "b c",
        "spark.d": "e=f",
    }


def test_a_properties_file_takes_the_place_of_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.a 1")
    (tmp_path / "mine.conf").write_text("spark.b=2")

    found = existing_settings({"PYSPARK_SUBMIT_ARGS": f"--properties-file={tmp_path}/mine.conf x"}, tmp_path)

    assert found == {"spark.b": "2"}


def test_without_any_configuration_nothing_is_set(tmp_path: Path) -> None:
    assert existing_settings({}, tmp_path) == {}
    assert submit_settings("") == ({}, None)


@given(
    st.dictionaries(st.from_regex(r"spark\.[a-z.]{1,9}", fullmatch=True), st.text("aZ09 :=#!\\,/-()|?.", max_size=20))
)
def test_a_properties_file_says_what_was_written(settings: dict[str, str]) -> None:
    stripped = {key: value.rstrip() for key, value in settings.items()}

    assert parse_properties(format_properties(stripped)) == stripped


def test_a_value_with_a_line_break_is_refused() -> None:
    with pytest.raises(CannotRun, match="line break"):
        format_properties({"spark.a": "b\nspark.c d"})


def test_only_a_local_session_keeps_to_this_machine() -> None:
    assert quiet_settings("local[2]")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in quiet_settings("spark://host:7077")
