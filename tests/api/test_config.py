"""What a client is told first: what this server can do, which warehouse it gets, and where that is."""

from pathlib import Path

import pytest

from nunatak.api.routes import ROUTES
from nunatak.settings import SettingsError
from tests.api.conftest import MakeCatalog
from tests.api.wire import ok, path_of
from tests.support.catalogs.local import LocalCatalog


def test_endpoints_are_exactly_the_routes_below_a_prefix(catalog: LocalCatalog) -> None:
    endpoints = ok(catalog.call("GET", "/v1/config"))["endpoints"]

    served = {f"{route.method} {route.template}" for route in ROUTES if "{prefix}" in route.template}
    assert set(endpoints) == served
    assert len(endpoints) == len(set(endpoints))


def test_every_endpoint_of_the_list_is_answered_by_its_own_operation(catalog: LocalCatalog) -> None:
    for endpoint in ok(catalog.call("GET", "/v1/config"))["endpoints"]:
        method, _, template = endpoint.partition(" ")
        path = (
            template.replace("{prefix}/", "")
            .replace("{namespace}", "nobody")
            .replace("{table}", "x")
            .replace("{view}", "x")
        )

        answer = catalog.call(method, path)

        route = next(route for route in ROUTES if (route.method, route.template) == (method, template))
        matched, _, _ = catalog.app.router.match(method, path)
        assert matched is route
        assert answer.status != 405
        if answer.body:
            assert "No route" not in answer.body.decode()


def test_a_client_that_names_no_warehouse_gets_the_default_one(catalog: LocalCatalog) -> None:
    config = ok(catalog.call("GET", "/v1/config"))

    assert config["defaults"]["warehouse"] == f"file://{catalog.warehouse}"
    assert config["overrides"] == {}
    assert config["idempotency-key-lifetime"] == "PT1800S"
    assert ok(catalog.call("GET", "/v1/config?warehouse=")) == config


@pytest.mark.parametrize("spelling", ["default", "file://{}", "file:{}", "file://{}/", "file://localhost{}"])
def test_a_warehouse_is_known_by_its_name_and_by_its_location(catalog: LocalCatalog, spelling: str) -> None:
    answer = catalog.call("GET", f"/v1/config?warehouse={spelling.format(catalog.warehouse)}")

    assert ok(answer) == ok(catalog.call("GET", "/v1/config"))


def test_an_unknown_warehouse_is_refused_with_the_known_names(make_catalog: MakeCatalog, quick_folder: Path) -> None:
    catalog = make_catalog(warehouses=f"cold=file://{quick_folder}/cold")

    answer = catalog.call("GET", "/v1/config?warehouse=warm")

    assert answer.error == (404, "NoSuchWarehouseException", "Warehouse does not exist: warm")
    assert answer.hint == "Known warehouses are default, cold; leave it out to use default."


def test_each_of_several_warehouses_has_its_prefix_its_place_and_its_names(
    make_catalog: MakeCatalog, quick_folder: Path
) -> None:
    catalog = make_catalog(warehouses=f"cold=file://{quick_folder}/cold,_ice-9=file://{quick_folder}/ice")

    assert ok(catalog.call("GET", "/v1/config"))["overrides"] == {"prefix": "default"}
    for name, place in (("cold", "cold"), ("_ice-9", "ice")):
        config = ok(catalog.call("GET", f"/v1/config?warehouse={name}"))
        assert config["overrides"] == {"prefix": name}
        assert config["defaults"]["warehouse"] == f"file://{quick_folder}/{place}"
        assert ok(catalog.call("GET", f"/v1/{name}/config")) == config

        prefixed = path_of("ns", "tables").replace("/v1/", f"/v1/{name}/")
        ok(catalog.call("POST", f"/v1/{name}/namespaces", {"namespace": ["ns"]}))
        table = ok(catalog.call("POST", prefixed, {"name": name, "schema": {"type": "struct", "fields": []}}))
        assert table["metadata"]["location"].startswith(f"file://{quick_folder}/{place}/ns/")
        assert ok(catalog.call("GET", prefixed))["identifiers"] == [{"namespace": ["ns"], "name": name}]

    assert ok(catalog.call("GET", "/v1/namespaces"))["namespaces"] == []


def test_a_warehouse_cannot_write_into_another(make_catalog: MakeCatalog, quick_folder: Path) -> None:
    catalog = make_catalog(warehouses=f"cold=file://{quick_folder}/cold")
    ok(catalog.call("POST", "/v1/cold/namespaces", {"namespace": ["ns"]}))

    answer = catalog.call(
        "POST",
        "/v1/cold/namespaces/ns/tables",
        {"name": "t", "schema": {"type": "struct", "fields": []}, "location": f"file://{catalog.warehouse}/t"},
    )

    assert answer.error[:2] == (400, "BadRequestException")
    assert catalog.files() == set()


def test_a_place_that_is_allowed_besides_the_warehouse_can_hold_tables(
    make_catalog: MakeCatalog, quick_folder: Path
) -> None:
    catalog = make_catalog(allowed_locations=f"file://{quick_folder}/lake, file://{quick_folder}/pond")
    catalog.namespace("ns")

    table = catalog.table("ns", "t", location=f"file:{quick_folder}/pond/t")

    assert table["metadata"]["location"] == f"file:{quick_folder}/pond/t"
    assert ok(catalog.call("GET", path_of("ns", "tables", "t"))) == table


@pytest.mark.parametrize(
    ("warehouses", "trouble"),
    [
        ("a b=file:///x", "cannot name a warehouse"),
        ("config=file:///x", "cannot name a warehouse"),
        ("default=file:///x", "two warehouses are named default"),
        ("a=ftp://host/x", "supported are file, s3, abfss, gs"),
        ("a=file:///x,b=file:///x/y", "overlap"),
        ("a", "write name=location"),
    ],
)
def test_warehouses_that_cannot_be_are_refused_at_the_start(
    make_catalog: MakeCatalog, warehouses: str, trouble: str
) -> None:
    with pytest.raises(SettingsError, match=trouble):
        make_catalog(warehouses=warehouses)


def test_a_separator_that_was_chosen_is_told_to_clients(make_catalog: MakeCatalog) -> None:
    assert ok(make_catalog(namespace_separator=".").call("GET", "/v1/config"))["overrides"] == {
        "namespace-separator": "%2E"
    }
    assert ok(make_catalog(namespace_separator="$").call("GET", "/v1/config"))["overrides"] == {
        "namespace-separator": "%24"
    }


# What an operator adds


def test_an_operator_adds_defaults_and_overrides(make_catalog: MakeCatalog, quick_folder: Path) -> None:
    """MISSION: 001-03"""
    catalog = make_catalog(
        config_defaults="s3.region=eu-central-1, io-impl=org.apache.iceberg.io.ResolvingFileIO",
        config_overrides='{"clients": "4", "header.x-team": "a,b"}',
        warehouses=f"cold=file://{quick_folder}/cold",
    )

    config = ok(catalog.call("GET", "/v1/config"))

    assert config["defaults"] == {
        "s3.region": "eu-central-1",
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        "warehouse": f"file://{catalog.warehouse}",
    }
    assert config["overrides"] == {"clients": "4", "header.x-team": "a,b", "prefix": "default"}


# Further base paths


def test_the_api_is_served_under_further_base_paths(make_catalog: MakeCatalog) -> None:
    """MISSION: 001-02"""
    catalog = make_catalog(base_paths="/lakehouse, data/iceberg/v1/, /iceberg/deep")

    usual = ok(catalog.call("GET", "/v1/config"))
    for base in ("/lakehouse", "/lakehouse/v1", "/data/iceberg", "/iceberg/deep", "/iceberg", "/apis/iceberg"):
        assert ok(catalog.call("GET", f"{base}/v1/config")) == usual
        assert ok(catalog.call("GET", f"{base}/v1/default/namespaces"))["namespaces"] == []
        assert catalog.call("GET", f"{base.removesuffix('/v1')}/management/v1/warehouses").status == 200
    for other in ("/lake", "/data", "/lakehouse/lakehouse", "/Lakehouse"):
        assert catalog.call("GET", f"{other}/v1/config").error[:2] == (400, "BadRequestException")
