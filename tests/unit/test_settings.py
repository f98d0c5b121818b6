"""Settings: where a value may come from, which wins, and what is said about one that cannot be used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nunatak.checks import check
from nunatak.settings import BY_NAME, SETTINGS, Settings, SettingsError, load


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "nunatak.toml"
    path.touch()
    return path


def loaded(config: Path, overrides: Mapping[str, Any] | None = None, /, **environment: str) -> Settings:
    variables = {f"NUNATAK_{name.upper()}": value for name, value in environment.items()}
    return load(overrides or {}, {"NUNATAK_CONFIG": str(config), **variables, "PATH": "/bin"})


def test_without_anything_the_defaults_hold(config: Path) -> None:
    settings = loaded(config)

    assert {setting.name: getattr(settings, setting.name) for setting in SETTINGS} == {
        setting.name: setting.default for setting in SETTINGS
    }
    assert set(settings.origins.values()) == {"default"}


def test_a_flag_beats_the_environment_which_beats_the_file(config: Path) -> None:
    config.write_text("port = 1\nhost = 'file'\ndata = 'file'\n")

    settings = loaded(config, {"port": 3, "host": None}, port="2", host="environment")

    assert (settings.port, settings.host, settings.data) == (3, "environment", Path("file"))
    assert settings.origins["port"] == "command line"
    assert settings.origins["host"] == "NUNATAK_HOST"
    assert settings.origins["data"] == str(config)
    assert settings.origins["workers"] == "default"


def test_lists_and_tables_in_the_file_mean_the_same_as_text(config: Path) -> None:
    config.write_text("allowed_locations = ['file:///a', 'file:///b']\n[warehouses]\ncold = 'file:///c'\n")

    from_file = loaded(config)
    config.write_text("")
    from_text = loaded(config, allowed_locations=" file:///a,, file:///b ", warehouses="cold=file:///c")

    for settings in (from_file, from_text):
        assert settings.allowed_locations == ("file:///a", "file:///b")
        assert settings.warehouses == (("cold", "file:///c"),)


@pytest.mark.parametrize(
    ("name", "value", "trouble"),
    [
        ("port", "high", "port from NUNATAK_PORT is 'high': a whole number is needed"),
        ("port", "70000", "a port is a number from 0 to 65535"),
        ("port", "-1", "a port is a number from 0 to 65535"),
        ("workers", "0", "must be at least 1"),
        ("max_body_bytes", "-5", "must be at least 1"),
        ("cache_bytes", "-1", "must not be negative"),
        ("idempotency_seconds", "0", "must be at least 1"),
        ("namespace_separator", "", "one character other than"),
        ("namespace_separator", "ab", "one character other than"),
        ("namespace_separator", "/", "one character other than"),
        ("namespace_separator", "%", "one character other than"),
        ("warehouses", "cold", "write name=location"),
        ("warehouses", "=file:///x", "write name=location"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_source(
    config: Path, name: str, value: str, trouble: str
) -> None:
    with pytest.raises(SettingsError, match=trouble) as refused:
        loaded(config, None, **{name: value})
    assert str(refused.value).startswith(f"{name} from NUNATAK_{name.upper()} is {value!r}")


def test_a_misspelt_name_is_answered_with_the_likely_one(config: Path) -> None:
    with pytest.raises(SettingsError, match="unknown environment variable NUNATAK_PROT; did you mean 'NUNATAK_PORT'"):
        loaded(config, prot="1")
    config.write_text("prot = 1\n")
    with pytest.raises(SettingsError, match="has an unknown setting 'prot'; did you mean 'port'"):
        loaded(config)


def test_a_file_that_is_not_toml_is_named(config: Path) -> None:
    config.write_text("port 1")

    with pytest.raises(SettingsError, match="is not TOML"):
        loaded(config)


def test_the_default_warehouse_comes_first_and_lies_in_the_data_folder(config: Path, tmp_path: Path) -> None:
    settings = loaded(config, data=str(tmp_path), warehouses="cold=file:///c/", allowed_locations="file:///x")

    first, second = settings.all_warehouses()
    assert (first.name, first.location, first.allowed_locations) == (
        "default",
        f"file://{tmp_path}/warehouse",
        ("file:///x",),
    )
    assert (second.name, second.location, second.allowed_locations) == ("cold", "file:///c", ())
    chosen = loaded(config, warehouse="file:///lake/", default_warehouse="lake").all_warehouses()[0]
    assert (chosen.name, chosen.location) == ("lake", "file:///lake")


def test_every_setting_has_a_meaning_and_a_field() -> None:
    assert len(BY_NAME) == len(SETTINGS)
    for setting in SETTINGS:
        assert setting.meaning.endswith(".")
        assert setting.name in Settings.__dataclass_fields__
        assert setting.environment_variable == f"NUNATAK_{setting.name.upper()}"
    assert set(Settings.__dataclass_fields__) == {*BY_NAME, "origins"}


# What clients are told


def test_a_table_of_the_file_holds_properties_for_clients(config: Path) -> None:
    config.write_text(
        '[config_defaults]\ns3.region = "eu"\n"header.x" = "a,b"\n[config_overrides]\nclients = 4\nview = true\n'
    )

    settings = loaded(config)

    assert dict(settings.config_defaults) == {"s3.region": "eu", "header.x": "a,b"}
    assert dict(settings.config_overrides) == {"clients": "4", "view": "true"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "name=value"),
        ("=a", "name=value"),
        ("{]", "JSON object"),
        ('{"a": [1]}', "JSON object"),
        ("a=1,a=2", "each once"),
        (",".join(f"k{number}=v" for number in range(101)), "at most 100"),
        (f"{'k' * 256}=v", "at most 255"),
        (f"k={'v' * 1001}", "at most 255"),
        ("k=a\x07b", "control character"),
        ("prefix=other", "set by the server itself"),
        ("warehouse=other", "set by the server itself"),
        ("namespace-separator=.", "set by the server itself"),
        ("token=t", "secret"),
        ("credential=a:b", "secret"),
        ("s3.secret-access-key=k", "secret"),
        ("s3.session-token=k", "secret"),
        ("adls.sas-token=k", "secret"),
        ("jdbc.password=k", "secret"),
        ("header.Authorization=Bearer x", "secret"),
    ],
)
def test_properties_that_clients_must_not_get_are_refused(config: Path, text: str, said: str) -> None:
    for name in ("config_defaults", "config_overrides"):
        with pytest.raises(SettingsError, match=said):
            loaded(config, **{name: text})


@pytest.mark.parametrize("text", ["/v1", "/a/v1/b", "/a b", "/a/../b", "/a//b", "/%41", "/a?b", "/ä", "."])
def test_a_base_path_that_no_client_could_use_is_refused(config: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="base_paths"):
        loaded(config, base_paths=text)


@pytest.mark.parametrize("path", ["/management", "/health/a", "/metrics", "/v1x/../v1"])
def test_a_base_path_must_not_hide_a_route(config: Path, path: str) -> None:
    with pytest.raises(SettingsError, match="base_paths"):
        check(loaded(config, base_paths=path))


@pytest.mark.parametrize(
    "secret",
    [
        {"opa_token": "hush-hush"},
        {"database_url": "postgresql://me:hush-hush@db/lake"},
        {"database_url": "jdbc:postgresql://db/lake?user=me&password=hush%2Dhush"},
    ],
)
def test_no_secret_of_the_server_is_told_to_clients(config: Path, secret: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="a secret in note") as refused:
        check(loaded(config, config_defaults="note=so hush-hush it is", **secret))

    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("size", ["0", "1001", "many"])
def test_a_page_size_that_cannot_be_is_refused(config: Path, size: str) -> None:
    with pytest.raises(SettingsError, match="page_size"):
        loaded(config, page_size=size)
