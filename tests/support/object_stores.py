"""Real object stores for tests, each on free ports of this machine and stopped by its pid.

ministack and SeaweedFS are two makes of S3 that enforce session policies; Azurite is Azure's blob service;
fake-gcs-server stands behind a front that enforces access boundaries. `tests/conftest.py` has a fixture of each.
"""

import base64
import contextlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import msgspec
import trustme
from azure.storage.blob import BlobServiceClient
from botocore.config import Config

from nunatak.objectstore.profile import (
    AdlsProfile,
    AdlsSecret,
    GcsProfile,
    GcsSecret,
    S3Profile,
    S3Secret,
    StorageProfile,
    StorageSecret,
)
from tests.support.forwarding import forward, json_headers
from tests.support.gcs_front import GcsFront, gcs_front
from tests.support.ports import free_port
from tests.support.processes import accepts_connections, answers_200, running_process
from tests.support.tool_cache import ToolMissing, go_program, npm_program

REGION = "us-east-1"
AZURITE_VERSION = "3.37.0"  # 3.35 refuses the SAS tokens of today's SDK; runs on Node 20 though it asks for 22
GCS_MODULE, GCS_VERSION = "github.com/fsouza/fake-gcs-server", "v1.56.1"
# The key that every Azurite has; it is published.
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
AZURITE_ACCOUNT = "devstoreaccount1"
TENANT = "00000000-0000-0000-0000-00000000ab1e"
_EVERYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def _new_name() -> str:
    return f"bucket-{uuid.uuid4().hex[:12]}"


def server_settings(profile: StorageProfile, secret: StorageSecret, location: str) -> dict[str, str]:
    """Returns the environment of a server whose default warehouse lies there."""
    described = {"default": msgspec.to_builtins(profile)}
    return {
        "NUNATAK_WAREHOUSE": location,
        "NUNATAK_STORAGE": json.dumps(described),
        "NUNATAK_STORAGE_SECRETS": json.dumps({"default": msgspec.to_builtins(secret)}),
    }


@dataclass(frozen=True)
class SessionKeys:
    """Temporary keys of S3, as STS gives them out."""

    access_key_id: str
    secret_access_key: str
    session_token: str


@dataclass(frozen=True)
class S3Emulator:
    """A store that speaks S3 and STS. The keys are the catalog's: they may do everything, and assume the role."""

    make: str
    endpoint: str
    access_key_id: str
    secret_access_key: str
    role_arn: str
    external_id: str | None = None

    def profile(self, **changes: Any) -> S3Profile:
        """Returns a profile for the store; `changes` are fields of it. `endpoint` may name a proxy before the store."""
        known = {"endpoint": self.endpoint, "role_arn": self.role_arn, "external_id": self.external_id}
        return S3Profile(**{"region": REGION, **known, **changes})

    def secret(self) -> S3Secret:
        return S3Secret(self.access_key_id, self.secret_access_key)

    def client(self, service: str = "s3", keys: SessionKeys | None = None) -> Any:
        """Returns a client of botocore that asks once, with the catalog's keys or with others; close it."""
        return botocore.session.get_session().create_client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=keys.access_key_id if keys else self.access_key_id,
            aws_secret_access_key=keys.secret_access_key if keys else self.secret_access_key,
            aws_session_token=keys.session_token if keys else None,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, parameter_validation=False),
        )

    def new_bucket(self, name: str | None = None) -> str:
        """Makes a bucket and returns its name."""
        name = name or _new_name()
        with closing(self.client()) as s3:
            s3.create_bucket(Bucket=name)
        return name

    def location(self, bucket: str, path: str = "") -> str:
        return f"s3://{bucket}/{path}".rstrip("/")

    def server_environment(self, location: str, endpoint: str | None = None) -> dict[str, str]:
        """The variables of a server whose default warehouse lies here; `endpoint` may name a proxy."""
        return {
            "NUNATAK_WAREHOUSE": location,
            "NUNATAK_S3_ENDPOINT": endpoint or self.endpoint,
            "NUNATAK_S3_REGION": REGION,
            "NUNATAK_S3_ACCESS_KEY_ID": self.access_key_id,
            "NUNATAK_S3_SECRET_ACCESS_KEY": self.secret_access_key,
        }

    def assume_role(self, policy: Mapping[str, Any], seconds: int = 900) -> SessionKeys:
        """Returns keys of the role, limited by a session policy. ministack ends sessions of any length on time."""
        external = {"ExternalId": self.external_id} if self.external_id else {}
        with closing(self.client("sts")) as sts:
            answer = sts.assume_role(
                RoleArn=self.role_arn,
                RoleSessionName="test",
                DurationSeconds=seconds,
                Policy=json.dumps(policy),
                **external,
            )
        made = answer["Credentials"]
        return SessionKeys(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])


@dataclass(frozen=True)
class AzureEmulator:
    """The blob service of Azurite; `certificate` is the file of its authority if it speaks HTTPS and takes tokens."""

    endpoint: str
    certificate: Path | None = None
    account: str = AZURITE_ACCOUNT
    account_key: str = AZURITE_KEY

    def profile(self, **changes: Any) -> AdlsProfile:
        return AdlsProfile(**{"endpoint": self.endpoint, "tenant_id": TENANT, **changes})

    def secret(self) -> AdlsSecret:
        return AdlsSecret(account_key=self.account_key)

    def access_token(self, seconds: int = 3600) -> str:
        """Returns a token of Entra ID as Azurite accepts it: the claims count, a signature is not checked."""
        now = int(time.time())
        claims = {
            "aud": "https://storage.azure.com",
            "iss": f"https://sts.windows-ppe.net/{TENANT}/",
            "iat": now - 60,
            "nbf": now - 60,
            "exp": now + seconds,
            "oid": "00000000-0000-0000-0000-0000000ca7a1",
            "tid": TENANT,
        }
        return f"{_base64url({'alg': 'none', 'typ': 'JWT'})}.{_base64url(claims)}."

    def client(self, credential: Any = None) -> BlobServiceClient:
        """Returns a client of the SDK, with the account key or another credential; close it."""
        trusted: Any = {"connection_verify": str(self.certificate)} if self.certificate else {}
        return BlobServiceClient(self.endpoint, credential=credential or self.account_key, retry_total=0, **trusted)

    def new_bucket(self, name: str | None = None) -> str:
        """Makes a container and returns its name."""
        name = name or _new_name()
        with self.client() as service:
            service.create_container(name)
        return name

    def location(self, container: str, path: str = "") -> str:
        return f"abfss://{container}@{self.account}.dfs.core.windows.net/{path}".rstrip("/")


def _base64url(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@dataclass(frozen=True)
class GcsEmulator:
    """Google Cloud Storage with the token exchange; `front` says what was refused."""

    front: GcsFront

    @property
    def endpoint(self) -> str:
        return self.front.endpoint

    @property
    def token_endpoint(self) -> str:
        return f"{self.front.endpoint}/v1/token"

    @property
    def access_token(self) -> str:
        """The catalog's token, which may do everything."""
        return self.front.root_token

    def profile(self, **changes: Any) -> GcsProfile:
        known = {"endpoint": self.endpoint, "token_endpoint": self.token_endpoint, "project_id": "test"}
        return GcsProfile(**{**known, **changes})

    def secret(self) -> GcsSecret:
        return GcsSecret(access_token=self.access_token)

    def new_bucket(self, name: str | None = None) -> str:
        """Makes a bucket and returns its name."""
        name = name or _new_name()
        headers = (*json_headers(Host="127.0.0.1"), ("Authorization", f"Bearer {self.access_token}"))
        body = json.dumps({"name": name}).encode()
        answer = forward(self.endpoint, "POST", "/storage/v1/b?project=test", headers, body)
        assert answer.status == 200, answer
        return name

    def location(self, bucket: str, path: str = "") -> str:
        return f"gs://{bucket}/{path}".rstrip("/")


@contextlib.contextmanager
def ministack(folder: Path, external_id: str | None = "tenant-1") -> Iterator[S3Emulator]:
    """S3, STS and IAM. The role demands the external id, if there is one.

    Its root keys pass with any secret, so the catalog gets a user of its own, whose signatures are checked.
    """
    folder = folder / "ministack"
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    environment = {
        "AUTH": "true",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SERVICES": "s3,sts,iam",
        "LOG_LEVEL": "WARNING",
        # Without these it listens on all addresses, whatever BIND_HOST says.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "S3_DATA_DIR": str(folder / "data"),
        "STATE_DIR": str(folder / "state"),
    }
    ready = answers_200(f"{endpoint}/_ministack/health")
    with running_process("ministack", [_python_program("ministack")], ready, folder, environment):
        yield _with_user_and_role(S3Emulator("ministack", endpoint, "test", "test", "", external_id))


def _with_user_and_role(root: S3Emulator) -> S3Emulator:
    trust: dict[str, Any] = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    if root.external_id:
        trust["Condition"] = {"StringEquals": {"sts:ExternalId": root.external_id}}
    everything = json.dumps(_EVERYTHING)
    with closing(root.client("iam")) as iam:
        trusted = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        role = iam.create_role(RoleName="vend", AssumeRolePolicyDocument=trusted)["Role"]["Arn"]
        iam.put_role_policy(RoleName="vend", PolicyName="all", PolicyDocument=everything)
        iam.create_user(UserName="catalog")
        iam.put_user_policy(UserName="catalog", PolicyName="all", PolicyDocument=everything)
        key = iam.create_access_key(UserName="catalog")["AccessKey"]
    return S3Emulator(root.make, root.endpoint, key["AccessKeyId"], key["SecretAccessKey"], role, root.external_id)


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[S3Emulator]:
    """S3 and STS without enforcement: keys that STS gives out may do everything, whatever the policy says."""
    port = free_port()
    command = [_python_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with running_process("moto", command, accepts_connections(port), folder / "moto"):
        yield S3Emulator("moto", f"http://127.0.0.1:{port}", "key", "secret", "arn:aws:iam::123456789012:role/vend")


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Emulator]:
    """S3 and STS of another make. A trust policy with an external id never matches there, so its role has none."""
    folder = folder / "seaweedfs"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    role_arn = "arn:aws:iam::000000000000:role/vend"
    identities = folder / "iam.json"
    identities.write_text(json.dumps(_seaweedfs_identities(role_arn)))
    services = ("s3", "s3.grpc", "master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc")
    ports = {service: free_port() for service in services}
    command = [
        _python_program("weed"),
        "-logtostderr=true",
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=1000",  # every bucket takes seven volumes; without one left it answers 500
        "-volume.preStopSeconds=0",
        "-filer",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.domainName=localhost",
        f"-s3.config={identities}",
        f"-s3.iam.config={identities}",
    ]
    for service, port in ports.items():
        name, _, kind = service.partition(".")
        command.append(f"-{name}.port{'.' + kind if kind else ''}={port}")
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    with running_process("seaweedfs", command, answers_200(f"{endpoint}/status"), folder):
        yield S3Emulator("seaweedfs", endpoint, "catalogkey", "catalogsecret", role_arn)


def _seaweedfs_identities(role_arn: str) -> dict[str, Any]:
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    return {
        "identities": [
            {
                "name": "catalog",
                "credentials": [{"accessKey": "catalogkey", "secretKey": "catalogsecret"}],
                "actions": ["Admin", "Read", "List", "Tagging", "Write"],
            }
        ],
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "seaweedfs-sts",
            "signingKey": base64.b64encode(b"a signing key of 32 characters!!").decode(),
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "all", "document": _EVERYTHING}],
        "roles": [
            {
                "roleName": "vend",
                "roleArn": role_arn,
                "attachedPolicies": ["all"],
                "trustPolicy": {"Version": "2012-10-17", "Statement": [trust]},
            }
        ],
    }


def _python_program(name: str) -> str:
    """Returns a program that a package of the test group brings."""
    # An environment that takes packages from another one has no programs of theirs.
    shared = [Path(entry).parents[2] / "bin" for entry in sys.path if Path(entry).name == "site-packages"]
    folders = [Path(sys.executable).parent, *shared]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if found is None:
        raise ToolMissing(f"NOT RUN: `{name}` is not installed beside {sys.executable}")
    return found


@contextlib.contextmanager
def azurite(folder: Path, *, oauth: bool = False) -> Iterator[AzureEmulator]:
    """Azure's blob service. With `oauth` it speaks HTTPS, takes Entra ID tokens and gives out user delegation keys."""
    folder = folder / ("azurite-oauth" if oauth else "azurite")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [
        str(npm_program("azurite-blob", "azurite", AZURITE_VERSION)),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "data")),
        *("--silent", "--skipApiVersionCheck", "--disableTelemetry"),
    ]
    certificate = None
    if oauth:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        certificate = folder / "authority.pem"
        authority.cert_pem.write_to_path(certificate)
        issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
        issued.private_key_pem.write_to_path(folder / "key.pem")
        command += ["--oauth", "basic", "--cert", str(folder / "certificate.pem"), "--key", str(folder / "key.pem")]
    scheme = "https" if oauth else "http"
    with running_process("azurite", command, accepts_connections(port), folder):
        yield AzureEmulator(f"{scheme}://127.0.0.1:{port}/{AZURITE_ACCOUNT}", certificate)


@contextlib.contextmanager
def gcs(folder: Path) -> Iterator[GcsEmulator]:
    """Google Cloud Storage: fake-gcs-server behind the front that enforces access boundaries."""
    port = free_port()
    backend = f"http://127.0.0.1:{port}"
    command = [
        str(go_program("fake-gcs-server", GCS_MODULE, GCS_VERSION)),
        *("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"),
        # The front replaces this address in every answer with its own.
        *("-public-host", f"127.0.0.1:{port}", "-external-url", backend),
    ]
    with (
        running_process("fake-gcs-server", command, accepts_connections(port), folder / "gcs"),
        gcs_front(backend, "root-token") as front,
    ):
        yield GcsEmulator(front)
