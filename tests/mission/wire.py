"""Requests as the mission's documents write them, with curl or plain HTTP, and their answers."""

import http.client
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.catalogs.process import RunningServer

ANSWER_SECONDS = 30


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Status and type of an error, once its envelope was found whole."""
        error = self.json["error"]
        assert isinstance(error["message"], str)
        assert error["message"]
        assert error["code"] == self.status
        return self.status, error["type"]


def curl(server: RunningServer, command: str) -> Answer:
    """Run a documented command in a shell; only the documented address gives way to the server's."""
    literal = command.replace("http://localhost:8080", server.uri).rstrip()
    finished = subprocess.run(
        ["/bin/bash", "-c", f"{literal} --silent --show-error --write-out '%{{stderr}}%{{http_code}}'"],
        env={**os.environ, "CATALOG_URL": server.uri, "no_proxy": "127.0.0.1"},
        capture_output=True,
        timeout=ANSWER_SECONDS,
        check=True,
    )
    return Answer(int(finished.stderr), finished.stdout, {})


def send(
    server: RunningServer,
    method: str,
    target: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request with a JSON body, or with exactly the bytes that are given."""
    connection = http.client.HTTPConnection(urlsplit(server.uri).netloc, timeout=ANSWER_SECONDS)
    try:
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if content is not None else {}
        connection.request(method, target, content, {**sent, **(headers or {})})
        response = connection.getresponse()
        return Answer(response.status, response.read(), {name.lower(): value for name, value in response.getheaders()})
    finally:
        connection.close()


def created(answer: Answer) -> Any:
    """The body of an answer that has to be 200."""
    assert answer.status == 200, answer.body
    return answer.json


def is_part_of(expected: Any, actual: Any) -> bool:
    """Whether everything a document shows is in the answer; an answer may say more."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            key in actual and is_part_of(value, actual[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and all(any(is_part_of(item, other) for other in actual) for item in expected)
    return bool(expected == actual)
