"""The configuration of each engine for a catalog, as text to copy. No I/O."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

SPARK_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"  # belongs to pyspark 4.1
SPARK_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
FLINK_RUNTIME = "org.apache.iceberg:iceberg-flink-runtime-2.0:1.10.0"


@dataclass(frozen=True)
class Login:
    """The login of an engine: `credential` is a client's id:secret, `token` an API key or an access token."""

    credential: str | None = None
    token: str | None = None


NO_LOGIN = Login()
# Placeholders, not secrets: the printed text may end up in a file that others can read.
CLIENT_LOGIN = Login(credential="CLIENT-ID:CLIENT-SECRET")
KEY_LOGIN = Login(token="API-KEY")


@dataclass(frozen=True)
class CatalogAddress:
    """The URI, warehouse and login that an engine is configured with."""

    uri: str
    warehouse: str | None
    login: Login

    @property
    def token_uri(self) -> str:
        return f"{self.uri}/v1/oauth/tokens"

    def properties(self) -> dict[str, str]:
        """Returns the catalog properties of Iceberg's clients; without `oauth2-server-uri` they log a warning."""
        found = {"uri": self.uri}
        if self.warehouse is not None:
            found["warehouse"] = self.warehouse
        if self.login.credential is not None:
            found |= {"credential": self.login.credential, "oauth2-server-uri": self.token_uri}
        if self.login.token is not None:
            found["token"] = self.login.token
        return found


def wiring_lines(engine: str, uri: str, warehouse: str | None = None, login: Login = NO_LOGIN) -> str:
    """Returns the text that configures `engine`, one of `ENGINES`, for the catalog at `uri`."""
    whole = uri if "//" in uri else f"http://{uri}"
    # Our commands accept a URI with /v1, too; engines append it themselves.
    return ENGINES[engine](CatalogAddress(whole.rstrip("/").removesuffix("/v1"), warehouse, login))


def _pyiceberg(place: CatalogAddress) -> str:
    properties = place.properties()
    if "credential" not in properties:
        given = "".join(f", {name}={_quote(value)}" for name, value in properties.items())
        call = f'load_catalog("lake", type="rest"{given})'
    else:  # `oauth2-server-uri` is not a Python identifier, so not a keyword argument
        lines = "".join(
            f"        {_quote(name)}: {_quote(value)},\n" for name, value in ({"type": "rest"} | properties).items()
        )
        call = f'load_catalog(\n    "lake",\n    **{{\n{lines}    }},\n)'
    return f"""\
from pyiceberg.catalog import load_catalog

catalog = {call}
print(catalog.list_namespaces())
"""


def _spark(place: CatalogAddress) -> str:
    """Returns Python code for a Spark session with the catalog `lake`."""
    settings = {
        "spark.jars.packages": SPARK_RUNTIME,
        "spark.sql.extensions": SPARK_EXTENSIONS,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
    } | {f"spark.sql.catalog.lake.{name}": value for name, value in place.properties().items()}
    lines = "\n".join(f"    .config({_quote(name)}, {_quote(value)})" for name, value in settings.items())
    return f"""\
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder
{lines}
    .getOrCreate()
)
spark.sql("SHOW NAMESPACES IN lake").show()
"""


def _duckdb(place: CatalogAddress) -> str:
    secret, proof = _duckdb_secret(place), "SECRET lake_login"
    if not secret:
        proof = "AUTHORIZATION_TYPE 'none'"
    return f"""\
INSTALL iceberg;
LOAD iceberg;
{secret}ATTACH '{_sql(place.warehouse or "")}' AS lake (TYPE iceberg, ENDPOINT '{place.uri}', {proof});
SHOW ALL TABLES;
"""


def _duckdb_secret(place: CatalogAddress) -> str:
    login = place.login
    if login.credential is not None:
        client_id, _, client_secret = login.credential.partition(":")
        return f"""\
CREATE SECRET lake_login (
  TYPE iceberg,
  CLIENT_ID '{_sql(client_id)}',
  CLIENT_SECRET '{_sql(client_secret)}',
  OAUTH2_SERVER_URI '{place.token_uri}'
);
"""
    return "" if login.token is None else f"CREATE SECRET lake_login (TYPE iceberg, TOKEN '{_sql(login.token)}');\n"


def _trino(place: CatalogAddress) -> str:
    login = place.login
    lines = [
        "# etc/catalog/lake.properties",
        "connector.name=iceberg",
        "iceberg.catalog.type=rest",
        f"iceberg.rest-catalog.uri={place.uri}",
    ]
    if place.warehouse is not None:
        lines.append(f"iceberg.rest-catalog.warehouse={place.warehouse}")
    if login != NO_LOGIN:
        lines.append("iceberg.rest-catalog.security=OAUTH2")
    if login.credential is not None:
        lines.append(f"iceberg.rest-catalog.oauth2.credential={login.credential}")
        lines.append(f"iceberg.rest-catalog.oauth2.server-uri={place.token_uri}")
    if login.token is not None:
        lines.append(f"iceberg.rest-catalog.oauth2.token={login.token}")
    lines += ["iceberg.rest-catalog.nested-namespace-enabled=true", "iceberg.unique-table-location=true"]
    return "".join(f"{line}\n" for line in lines)


def _flink(place: CatalogAddress) -> str:
    options = {"type": "iceberg", "catalog-type": "rest"} | place.properties()
    lines = ",\n".join(f"  '{name}' = '{_sql(value)}'" for name, value in options.items())
    return f"""\
-- needs {FLINK_RUNTIME} (or the runtime of your Flink) on the class path
CREATE CATALOG lake WITH (
{lines}
);
USE CATALOG lake;
"""


def _clickhouse(place: CatalogAddress) -> str:
    login, settings = place.login, {"catalog_type": "rest", "warehouse": place.warehouse or ""}
    if login.credential is not None:
        settings |= {
            "catalog_credential": login.credential,
            "oauth_server_uri": place.token_uri,
            "auth_scope": "PRINCIPAL_ROLE:ALL",
        }
    if login.token is not None:
        settings["auth_header"] = f"Authorization: Bearer {login.token}"
    lines = ",\n    ".join(f"{name} = '{_sql(value)}'" for name, value in settings.items())
    return f"""\
-- ClickHouse lists a local (file:) warehouse but reads rows only from an object store.
SET allow_database_iceberg = 1;
CREATE DATABASE lake ENGINE = DataLakeCatalog('{place.uri}/v1')
  SETTINGS
    {lines};
SHOW TABLES FROM lake;
"""


def _curl(place: CatalogAddress) -> str:
    login, uri = place.login, f"{place.uri}/v1"
    chosen, inside = "", uri
    if place.warehouse is not None:
        chosen = f" --get --data-urlencode {shlex.quote(f'warehouse={place.warehouse}')}"
        inside = f"{uri}/{quote(place.warehouse, safe='')}"  # the `prefix` in the response of the first line
    token, proof = "", ""
    if login.credential is not None:
        asked = f"curl -s -u {shlex.quote(login.credential)} -d grant_type=client_credentials {place.token_uri}"
        token = f"""TOKEN=$({asked} | sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')\n"""
    if login.token is not None:
        token = f"TOKEN={shlex.quote(login.token)}\n"
    if token:
        proof = ' -H "Authorization: Bearer $TOKEN"'
    return f"""\
{token}curl -s{proof}{chosen} {uri}/config
curl -s{proof} {inside}/namespaces
curl -s{proof} -X POST {inside}/namespaces -H 'Content-Type: application/json' -d '{{"namespace": ["demo"]}}'
"""


def _quote(value: str) -> str:
    """Returns a Python string literal in double quotes."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _sql(value: str) -> str:
    return value.replace("'", "''")


ENGINES: dict[str, Callable[[CatalogAddress], str]] = {
    "pyiceberg": _pyiceberg,
    "spark": _spark,
    "duckdb": _duckdb,
    "trino": _trino,
    "flink": _flink,
    "clickhouse": _clickhouse,
    "curl": _curl,
}
