"""Settings: where a value may come from, which wins, and what is said about one that cannot be used."""

from pathlib import Path

import pytest

from nunatak.settings import BY_NAME, SETTINGS, Settings, SettingsError, load


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "nunatak.toml"
    path.touch()
    return path


def loaded(config: Path, overrides: dict[str, object] | None = None, **environment: str) -> Settings:
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
        ("port", "70000", "a port lies between 0 and 65535"),
        ("port", "-1", "a port lies between 0 and 65535"),
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
        loaded(config, **{name: value})
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
