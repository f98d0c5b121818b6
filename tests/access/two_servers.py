"""Two servers on one PostgreSQL that ask who is there, and an administrator who talks to the first."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support.workload import mortal_server


@dataclass
class Pair:
    ports: tuple[int, int]
    token: str = ""
    _open: dict[int, HTTPConnection] = field(default_factory=dict)

    def call(self, number: int, method: str, path: str, token: str, body: Any = None) -> tuple[int, bytes]:
        connection = self._open.setdefault(number, HTTPConnection("127.0.0.1", self.ports[number], timeout=30))
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def status(self, number: int, method: str, path: str, token: str, body: Any = None) -> int:
        return self.call(number, method, path, token, body)[0]

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """By the administrator, at the first server."""
        status, content = self.call(0, method, path, self.token, body)
        assert status in (200, 204), (method, path, status, content)
        return json.loads(content) if content else None

    def principal(self, name: str) -> str:
        """A new principal's API key."""
        self.admin("POST", "/management/v1/principals", {"name": name})
        return self.credential(name, "api-key")[1]

    def credential(self, name: str, kind: str) -> tuple[str, str]:
        """The id and the secret of a new one."""
        made = self.admin("POST", f"/management/v1/principals/{name}/credentials", {"kind": kind})
        return made["credential-id"], made["secret"]

    def log_in(self, number: int, client: tuple[str, str]) -> str:
        connection = HTTPConnection("127.0.0.1", self.ports[number], timeout=30)
        form = {"grant_type": "client_credentials", "client_id": client[0], "client_secret": client[1]}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/v1/oauth/tokens", urlencode({**form, "scope": "catalog"}), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        token: str = json.loads(content)["access_token"]
        connection.close()
        return token

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


@contextmanager
def running_pair(data: Path, url: str) -> Iterator[Pair]:
    environment = {"NUNATAK_DATABASE_URL": url, "NUNATAK_AUTH": "embedded"}
    command = [sys.executable, "-m", "nunatak", "init", "--data", str(data)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
    admin = json.loads((data / "admin.json").read_text())
    with mortal_server(data, environment=environment) as one, mortal_server(data, environment=environment) as two:
        pair = Pair((one.port, two.port))
        pair.token = pair.log_in(0, (admin["client-id"], admin["client-secret"]))
        try:
            yield pair
        finally:
            pair.close()
