"""The settings: name, type, default and meaning of each; read from flags, the environment and `nunatak.toml`."""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nunatak.database_url import normal_url
from nunatak.secret import Secret
from nunatak.setting_values import (
    MAX_PAGE_SIZE,
    parse_authorizer,
    parse_base_paths,
    parse_connections,
    parse_error_types,
    parse_flag,
    parse_lease,
    parse_level,
    parse_list,
    parse_modes,
    parse_not_negative,
    parse_page_size,
    parse_pairs,
    parse_port,
    parse_positive,
    parse_properties,
    parse_separator,
    parse_tables,
)

PREFIX = "NUNATAK_"
CONFIG_FILE = "nunatak.toml"


class SettingsError(Exception):
    """An invalid setting; the message names it and says which values are valid."""


@dataclass(frozen=True)
class Warehouse:
    """A named warehouse: `location` is the root of new tables, `allowed_locations` may hold registered ones."""

    name: str
    location: str
    allowed_locations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """The definition of a setting; `parse` converts text to the value or raises ValueError."""

    name: str
    default: Any
    parse: Callable[[str], Any]
    meaning: str

    @property
    def environment_variable(self) -> str:
        return PREFIX + self.name.upper()


def _secret_tables(text: str) -> Secret:
    parse_tables(text)
    return Secret(text)


SETTINGS: tuple[Setting, ...] = (
    Setting("host", "127.0.0.1", str, "Address to listen on."),
    Setting("port", 8181, parse_port, "Port to listen on; 0 chooses a free port and prints it."),
    Setting(
        "data", Path("nunatak-data"), Path, "Data folder: the default SQLite database and the default local warehouse."
    ),
    Setting(
        "database_url",
        "",
        normal_url,
        "Database of the catalog: sqlite:///path, postgresql://… or mariadb://…, also in JDBC or SQLAlchemy "
        "spelling; sqlite:///:memory: for tests; empty: SQLite in the data folder.",
    ),
    Setting(
        "database_connections",
        10,
        parse_connections,
        "Maximum database connections of each server process; about five per core of the database server suffice.",
    ),
    Setting("workers", 1, parse_positive, "Server processes; SQLite supports exactly one."),
    Setting(
        "warehouse",
        "",
        str,
        "Location of the default warehouse; empty means the folder `warehouse` in the data folder.",
    ),
    Setting(
        "storage",
        (),
        parse_tables,
        "How the stores of warehouses are reached, by name of warehouse: a table of the file for each, such as "
        "[storage.default], or JSON. Its fields are those of a storage profile: endpoint, region, role-arn, ….",
    ),
    Setting(
        "storage_secrets",
        Secret(""),
        _secret_tables,
        "The server's own credentials for these stores, by name of warehouse, in the same way: access-key-id and "
        "secret-access-key, or account-key, or service-account-key; none: the usual chain of the cloud.",
    ),
    Setting("s3_endpoint", "", str, "Address of a store that speaks S3, for warehouses without `storage`; empty: AWS."),
    Setting("s3_region", "us-east-1", str, "Region of S3 warehouses without `storage`."),
    Setting("s3_access_key_id", "", str, "The server's own key for S3 warehouses without `storage_secrets`."),
    Setting(
        "s3_secret_access_key", Secret(""), Secret, "Its secret part; without both the usual chain of AWS applies."
    ),
    Setting(
        "s3_role_arn", "", str, "Role that the server assumes to vend credentials, for warehouses without `storage`."
    ),
    Setting("default_warehouse", "default", str, "Name (and prefix) of the default warehouse."),
    Setting("warehouses", (), parse_pairs, "Further warehouses as name=location, separated by commas."),
    Setting(
        "warehouse_roots",
        (),
        parse_list,
        "Locations inside which warehouses may be created while the server runs, separated by commas; empty: "
        "the folder `warehouses` in the data folder.",
    ),
    Setting(
        "private_endpoints",
        False,
        parse_flag,
        "Whether storage profiles may name endpoints on this machine or in private networks, such as a MinIO "
        "server. If true, administrators can make the server connect to hosts inside its network.",
    ),
    Setting(
        "plain_locations",
        (),
        parse_list,
        "Names of warehouses that place new tables at <namespace>/<table> if that folder is free, as JDBC "
        "catalogs do; separated by commas. Other warehouses append a UUID to the folder name.",
    ),
    Setting(
        "allowed_locations",
        (),
        parse_list,
        "Further locations allowed for tables of the default warehouse, e.g. file:///tmp; separated by commas.",
    ),
    Setting(
        "namespace_separator",
        "\x1f",
        parse_separator,
        "Separator of namespace levels in URLs; %1F is always accepted too.",
    ),
    Setting(
        "base_paths",
        (),
        parse_base_paths,
        "Further paths under which the API is served, such as /lakehouse, besides /, /iceberg, /apis/iceberg and "
        "/api/catalog; separated by commas.",
    ),
    Setting(
        "page_size",
        MAX_PAGE_SIZE,
        parse_page_size,
        f"Entries on a page for a client that sends pageToken without pageSize; at most {MAX_PAGE_SIZE}. A client that "
        "sends neither gets the whole list, as the specification wants it.",
    ),
    Setting(
        "config_defaults",
        (),
        parse_properties,
        "`defaults` of /v1/config: properties that the client's own configuration overrides, as name=value "
        "separated by commas, as JSON, or as a TOML table. No secrets: every caller can read them.",
    ),
    Setting(
        "config_overrides",
        (),
        parse_properties,
        "`overrides` of /v1/config: properties that override the client's own configuration.",
    ),
    Setting(
        "error_types",
        "iceberg",
        parse_error_types,
        "Error types: iceberg, those of Iceberg's reference server; or distinct: NotAuthenticatedException "
        "for 401, NotAuthorizedException for 403, ValidationException for 422, ServiceException for 500, and "
        "404 NotFoundException for a path that no route has.",
    ),
    Setting(
        "max_body_bytes",
        8 * 1024 * 1024,
        parse_positive,
        "Maximum size of a request body, before and after decompression; many routes accept less. A body of 8"
        " MiB blocks other requests for about 50 ms.",
    ),
    Setting("idempotency_seconds", 1800, parse_positive, "Minimum retention of an Idempotency-Key."),
    Setting("cache_bytes", 64 * 1024 * 1024, parse_not_negative, "Size of the metadata cache."),
    Setting(
        "sweep_seconds",
        3600,
        parse_positive,
        "Interval at which the server deletes metadata files left behind by a crash.",
    ),
    Setting(
        "sweep_age_seconds",
        86_400,
        parse_not_negative,
        "Minimum age of a metadata file left behind by a crash to be deleted; 0: never, and fsck does not report them.",
    ),
    Setting(
        "object_sweep_seconds",
        604_800,
        parse_not_negative,
        "How often it lists the metadata folders of warehouses on object stores for such files; every listing is paid "
        "for, and only a server that was killed during a commit leaves any; 0: never.",
    ),
    Setting(
        "maintenance_lease_seconds",
        90,
        parse_lease,
        "Lease of a maintenance job: a worker that does not report for this long loses it. Workers report "
        "three times in it.",
    ),
    Setting(
        "auth",
        ("none",),
        parse_modes,
        "Authentication: none, on a loopback address only, or any of embedded, oidc, proxy, certificate; "
        "separated by commas.",
    ),
    Setting(
        "allow_open",
        False,
        parse_flag,
        "Whether the server starts with auth none although the catalog has an administrator.",
    ),
    Setting("token_seconds", 900, parse_positive, "Lifetime of the access tokens that this server issues."),
    Setting("oidc_issuers", (), parse_list, "Trusted OIDC issuers, as in the claim `iss`; separated by commas."),
    Setting("oidc_audience", "", str, "Required value of the claim `aud`; auth oidc needs it."),
    Setting(
        "oidc_keys",
        (),
        parse_pairs,
        "JWKS URLs as issuer=url, separated by commas; default: the jwks_uri of the issuer's discovery document.",
    ),
    Setting("oidc_algorithms", ("RS256", "ES256"), parse_list, "Accepted signature algorithms; asymmetric ones only."),
    Setting("oidc_principal_claim", "sub", str, "Claim with the name of the principal; dots address nested claims."),
    Setting("oidc_roles_claim", "roles", str, "Claim with the roles; dots address nested claims; empty: none."),
    Setting("proxy_header", "x-forwarded-user", str, "Header of a trusted proxy with the name of the principal."),
    Setting(
        "proxy_roles_header", "", str, "Header of a trusted proxy with the roles, separated by commas; empty: none."
    ),
    Setting(
        "trusted_proxies",
        (),
        parse_list,
        "Addresses or networks (10.0.0.0/8) of trusted proxies; their X-Forwarded-For is trusted too.",
    ),
    Setting("authorizer", "builtin", parse_authorizer, "Authorizer: builtin, opa or cedar."),
    Setting("opa_url", "", str, "URL of the OPA decision document, e.g. http://127.0.0.1:8182/v1/data/nunatak/rights."),
    Setting("opa_token", Secret(""), Secret, "Bearer token for OPA; empty: none."),
    Setting("cedar_policies", "", str, "File with Cedar policies."),
    Setting("key_file", "", str, "File of keys that encrypt secrets; empty: nunatak.keys in the data folder."),
    Setting(
        "rate_limit",
        1000,
        parse_not_negative,
        "Requests per second of one principal to one server process when auth is on, with bursts of twice as "
        "many; 0: no limit.",
    ),
    Setting(
        "address_rate_limit",
        2000,
        parse_not_negative,
        "The same limit for one client address, or one IPv6 /64 network.",
    ),
    Setting(
        "address_connections",
        1000,
        parse_not_negative,
        "Concurrent connections of one client address, or one IPv6 /64 network, to a server process; 0: no "
        "limit. Trusted proxies are not limited.",
    ),
    Setting(
        "max_in_flight",
        2000,
        parse_positive,
        "Concurrent requests of one server process; further ones are answered 503.",
    ),
    Setting(
        "receive_seconds", 30, parse_positive, "Time limit for receiving a request; then the connection is closed."
    ),
    Setting(
        "audit_reads",
        True,
        parse_flag,
        "Whether reads are audited when auth is on, aggregated by principal and object.",
    ),
    Setting(
        "audit_retention_days",
        0,
        parse_not_negative,
        "Days after which denials, logins and reads are deleted from the audit trail; changes are never "
        "deleted; 0: nothing is deleted.",
    ),
    Setting(
        "spool_location",
        "",
        str,
        "Folder of the telemetry spool, which Spark ingests; empty: `spool` in the data folder; off: no telemetry.",
    ),
    Setting(
        "spool_bytes",
        256 * 1024 * 1024,
        parse_positive,
        "Maximum size of the spool; beyond it the oldest records are deleted.",
    ),
    Setting("outbox_days", 7, parse_positive, "Retention of events in the outbox, in days."),
    Setting(
        "outbox_events",
        1_000_000,
        parse_positive,
        "Maximum number of events in the outbox, about 0.5 KB each; beyond it the oldest are deleted.",
    ),
    Setting(
        "tls_certificate",
        "",
        str,
        "PEM file of the server's certificate chain; enables TLS. A renewed file is loaded without a restart.",
    ),
    Setting("tls_key", "", str, "PEM file of the server's private key; empty: the key is in tls_certificate."),
    Setting("tls_client_ca", "", str, "PEM file of the CA that signs accepted client certificates."),
    Setting(
        "linux_syscalls",
        True,
        parse_flag,
        "Whether files of a local warehouse are written by direct Linux system calls (openat2, io_submit), "
        "which use less CPU; false: by Python's functions and os.fsync in threads, as on other operating "
        "systems.",
    ),
    Setting("log_level", "warning", parse_level, "Log level: debug, info, warning or error."),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Settings:
    """The values of all settings, as `load` returns them; `origins` names the source of each value."""

    host: str
    port: int
    data: Path
    database_url: str = field(repr=False)  # it may hold a password
    database_connections: int
    workers: int
    warehouse: str
    storage: tuple[tuple[str, str], ...]
    storage_secrets: Secret
    s3_endpoint: str
    s3_region: str
    s3_access_key_id: str
    s3_secret_access_key: Secret
    s3_role_arn: str
    default_warehouse: str
    warehouses: tuple[tuple[str, str], ...]
    warehouse_roots: tuple[str, ...]
    private_endpoints: bool
    plain_locations: tuple[str, ...]
    allowed_locations: tuple[str, ...]
    namespace_separator: str
    base_paths: tuple[str, ...]
    page_size: int
    config_defaults: tuple[tuple[str, str], ...]
    config_overrides: tuple[tuple[str, str], ...]
    error_types: str
    max_body_bytes: int
    idempotency_seconds: int
    cache_bytes: int
    sweep_seconds: int
    sweep_age_seconds: int
    object_sweep_seconds: int
    maintenance_lease_seconds: int
    auth: tuple[str, ...]
    allow_open: bool
    token_seconds: int
    oidc_issuers: tuple[str, ...]
    oidc_audience: str
    oidc_keys: tuple[tuple[str, str], ...]
    oidc_algorithms: tuple[str, ...]
    oidc_principal_claim: str
    oidc_roles_claim: str
    proxy_header: str
    proxy_roles_header: str
    trusted_proxies: tuple[str, ...]
    authorizer: str
    opa_url: str
    opa_token: Secret
    cedar_policies: str
    key_file: str
    rate_limit: int
    address_rate_limit: int
    address_connections: int
    max_in_flight: int
    receive_seconds: int
    audit_reads: bool
    audit_retention_days: int
    spool_location: str
    spool_bytes: int
    outbox_days: int
    outbox_events: int
    tls_certificate: str
    tls_key: str
    tls_client_ca: str
    linux_syscalls: bool
    log_level: str
    origins: Mapping[str, str]

    def all_warehouses(self) -> tuple[Warehouse, ...]:
        """Returns the default warehouse, then the others in the order of the setting."""
        # Iceberg's clients do not decode the path of a file: location, so nothing is percent-encoded.
        home = self.warehouse or f"file://{self.data.resolve()}/warehouse"
        first = Warehouse(self.default_warehouse, home.rstrip("/"), self.allowed_locations)
        return (first, *(Warehouse(name, location.rstrip("/")) for name, location in self.warehouses))

    def spool_folder(self) -> Path | None:
        """Returns the folder of the telemetry spool, or None if it is off."""
        place = self.spool_location
        if place == "off":
            return None
        if "://" in place and not place.startswith("file:///"):
            raise SettingsError(f"spool_location is {place}: write a folder, or off")
        return Path(place.removeprefix("file://")) if place else self.data / "spool"

    def all_warehouse_roots(self) -> tuple[str, ...]:
        return self.warehouse_roots or (f"file://{self.data.resolve()}/warehouses",)


def load(overrides: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """Loads the settings: flags override the environment, then the file, then defaults; a flag of None is not given."""
    named = environment.get(PREFIX + "CONFIG")
    file_path = Path(named or CONFIG_FILE)
    # A missing file must not fall back to the defaults, which need no login; /dev/null means no file on purpose.
    if named and (file_path.is_dir() or not file_path.exists()):
        raise SettingsError(f"{PREFIX}CONFIG names {file_path}, which does not exist")
    file_values = _read_file(file_path)
    _refuse_unknown_variables(environment)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        flag = overrides.get(setting.name)
        variable = environment.get(setting.environment_variable)
        if flag is not None:
            values[setting.name], origins[setting.name] = (
                _parse_value(setting, flag, "the command line"),
                "command line",
            )
        elif variable is not None:
            values[setting.name] = _parse_value(setting, variable, setting.environment_variable)
            origins[setting.name] = setting.environment_variable
        elif setting.name in file_values:
            values[setting.name] = _parse_value(setting, file_values[setting.name], str(file_path))
            origins[setting.name] = str(file_path)
        else:
            values[setting.name], origins[setting.name] = setting.default, "default"
    return Settings(**values, origins=origins)


def _parse_value(setting: Setting, value: object, source: str) -> Any:
    if isinstance(value, list):
        value = ",".join(str(item) for item in value)
    elif isinstance(value, dict) and setting.parse in (parse_properties, parse_tables, _secret_tables):
        value = json.dumps(value)
    elif isinstance(value, dict):
        value = ",".join(f"{name}={item}" for name, item in value.items())
    try:
        return setting.parse(str(value))
    except ValueError as error:
        shown = "a secret" if isinstance(setting.default, Secret) else without_password(str(value))
        raise SettingsError(f"{setting.name} from {source} is {shown!r}: {error}") from error


def files_with_secrets(settings: Settings) -> list[str]:
    """Returns the settings files that hold a secret: a token, or a URL with a password."""
    secret = [name for name in BY_NAME if _is_secret(getattr(settings, name))]
    known = {"default", "command line", *(setting.environment_variable for setting in SETTINGS)}
    return sorted({settings.origins[name] for name in secret} - known)


def _is_secret(value: object) -> bool:
    if isinstance(value, Secret):
        return bool(value.reveal())
    return isinstance(value, str) and without_password(value) != value


_SECRET_OPTION = re.compile(r"([?&;][^=&;]*(?:pass|pwd|secret|token)[^=&;]*=)[^&]*?(?=&|;[^=&;]*=|$)", re.IGNORECASE)


def without_password(address: str) -> str:
    """Masks passwords and other secrets in a URL, also in a malformed one."""
    scheme, separator, rest = address.partition("://") if "://" in address else ("", "", address)
    account, at, host = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    shown = f"{scheme}{separator}{user}:***@{host}" if at and colon else address
    return _SECRET_OPTION.sub(r"\1***", shown)


def _read_file(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    for name in values:
        if name not in BY_NAME:
            raise SettingsError(f"{path} has an unknown setting {name!r}{_did_you_mean(name, list(BY_NAME))}")
    return values


# Read by the command line and the tests, not by the server.
OTHER_VARIABLES = {
    "NUNATAK_CONFIG": "The file with settings; `nunatak.toml` in the working folder unless given.",
    "NUNATAK_URI": "The catalog that a command talks to.",
    "NUNATAK_CREDENTIAL": "With what a command logs in: CLIENT-ID:CLIENT-SECRET.",
    "NUNATAK_TOKEN": "With what a command logs in: an API key or a token.",
    "NUNATAK_SPARK_JARS": "Jars, or folders of jars, for Spark that need not be downloaded; separated by commas.",
    "NUNATAK_MAVEN_URL": "A repository from which to download jars instead of asking Maven.",
    "NUNATAK_SOURCE_TOKEN": "With what `nunatak migrate` logs in at the catalog that is to be migrated.",
    "NUNATAK_SOURCE_CREDENTIAL": "The same, as CLIENT-ID:CLIENT-SECRET.",
    "NUNATAK_SOURCE_PASSWORD": "The password of a database that is to be migrated.",
}
_OF_TESTS = ("NUNATAK_TEST_", "NUNATAK_BENCH_", "NUNATAK_DIFFERENTIAL_", "NUNATAK_REST_SPEC")


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {setting.environment_variable for setting in SETTINGS} | set(OTHER_VARIABLES)
    for name in environment:
        if name.startswith(PREFIX) and name not in known and not name.startswith(_OF_TESTS):
            raise SettingsError(f"unknown environment variable {name}{_did_you_mean(name, sorted(known))}")


def _did_you_mean(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
