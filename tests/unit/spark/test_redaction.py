"""No secret of ours leaves a Spark program."""

import json

import msgspec
import pytest

from nunatak.maintenance.job_spec import JobSpec
from nunatak_spark.console import WorkerEvent, print_json_lines, print_lines
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import LONGEST, failure_reason
from nunatak_spark.maintenance.job_context import JobOutcome
from nunatak_spark.redaction import environment_secrets, redact, redact_text, remember_secret
from nunatak_spark.worker import JobResult, _result_body, dry_run_event

SECRETS = ("kWq8-s3cr3t_of-the.client", "AKIA/exampleKey+x9")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nunatak_spark.redaction._known", set())
    monkeypatch.setenv("NUNATAK_CREDENTIAL", f"worker:{SECRETS[0]}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[1])


@pytest.mark.parametrize(
    "text",
    [
        f"Table not found: t{SECRETS[0]}",
        f"t{SECRETS[1]}{SECRETS[0]}",
        "jdbc:postgresql://admin:hunter2hunter@db:5432/x failed",
        "https://ada:hunter2hunter:x@host/path",
        "jdbc:mysql://db/x?user=a&password=hunter2hunter&ssl=true",
        "jdbc:sqlserver://db;user=a;Password=hunter2hunter;encrypt=true",
        "jdbc:oracle:thin:scott/hunter2hunter@//db:1521/x",
        "s3.secret-access-key=hunter2hunter",
        '{"password": "hunter2hunter"}',
        "'fs.azure.account.key' => 'x', 'client_secret' = 'hunter2hunter'",
        "https://bucket/key?X-Amz-Signature=hunter2hunter&x=1",
        "https://account.blob/x?sv=1&sig=hunter2hunter",
        "Authorization: Bearer hunter2hunter.abc",
        "token eyJhbGciOiJIUzI1NiJ9.hunter2hunter.AbCd_123",
    ],
)
def test_secrets_are_taken_out_of_texts(text: str) -> None:
    clean = redact_text(text)

    assert "***" in clean
    assert not [secret for secret in (*SECRETS, "hunter2hunter") if secret in clean]


@pytest.mark.parametrize(
    "text",
    [
        "Syntax error at or near 'x': unexpected token 'y'",
        "Table lake.sales.tokens does not exist",
        "s3://bucket/access-keys/file.parquet",
        "The snapshot 7 has 3 secret rows",
        "CommitFailedException: branch main has changed",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact_text(text) == text


def test_of_the_environment_secrets_count_and_not_where_they_lie() -> None:
    environment = {
        "NUNATAK_TOKEN": "abcdefgh",
        "SOURCE_DB_PASSWORD": "hunter22",
        "MY_API_KEY": "12345678",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "TOKEN": "abc",
        "HOME": "/home/ada",
    }

    assert environment_secrets(environment) == {"abcdefgh", "hunter22", "12345678"}


def test_what_a_session_logs_in_with_is_taken_out_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    remember_secret("id-of-worker:the-real-secret", "a-token-of-ours", None, "")
    outcome = JobOutcome(detail={"text": "the-real-secret", "a-token-of-ours": [{"x": "a-token-of-ours"}]})
    ended = JobResult("failed", outcome, "no table ta-token-of-ours")
    spec = JobSpec(type="statistics", warehouse="w", namespace=["n"], table="t", table_uuid="u")

    told = json.dumps(_result_body(ended))
    with print_lines() as print_event, print_json_lines() as print_json_event:
        for each in (print_event, print_json_event):
            each(dry_run_event(spec, ended))
            each(WorkerEvent(event="unreachable", text="the-real-secret", error="the-real-secret"))
    printed = capsys.readouterr().out
    cannot = CannotRun("Spark said the-real-secret", fix="a-token-of-ours")

    for text in (told, printed, str(cannot), cannot.problem, cannot.fix, msgspec.json.encode(redact(["x"])).decode()):
        assert "the-real-secret" not in text
        assert "a-token-of-ours" not in text
    assert "no table t***" in told
    assert "no table t***" in printed


@pytest.mark.parametrize("cut", range(1, len(SECRETS[0])))
def test_a_secret_is_not_cut_in_half(cut: int) -> None:
    """Whoever chooses a name chooses how long the text before the secret is."""
    told = failure_reason(Exception("x" * (LONGEST - cut) + SECRETS[0]))

    assert SECRETS[0][:4] not in told
