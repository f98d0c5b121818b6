"""Iceberg's Java client, which signs a few requests with an access key."""

import subprocess

from tests.support.java.project import class_path

SECONDS = 60


def run_signing_client(uri: str, warehouse: str, access_key: str, secret: str) -> "subprocess.CompletedProcess[str]":
    """It makes the namespace a.`b é`, lists what is in it, and drops it; standard error says what went wrong."""
    command = ["java", "-cp", class_path("signer"), "SigningClient", uri, warehouse, access_key, secret]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
