"""What a failed job says, with exceptions that really come out of Java."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.maintenance.job_failures import JobFailed
from nunatak_spark.migration.migration_run import error_text
from nunatak_spark.migration.verification import failure_finding
from tests.spark.maintenance.conftest import Maintenance
from tests.support.spark import Sql, local_path


def a_table_of_three_files(maintenance: Maintenance) -> list[str]:
    maintenance.sql("CREATE TABLE t (id BIGINT)")
    for number in range(3):
        maintenance.sql(f"INSERT INTO t VALUES ({number})")
    return [row.file_path for row in maintenance.sql("SELECT file_path FROM here.t.files")]


def test_a_job_without_its_data_names_the_file(maintenance: Maintenance) -> None:
    lost = local_path(a_table_of_three_files(maintenance)[0])
    lost.unlink()

    with pytest.raises(JobFailed, match=rf"\w+Exception: .*{lost.name}") as failed:
        maintenance.run("t", "data-compaction", min_input_files=2)

    assert "An error occurred while calling" not in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_job_without_a_manifest_names_it(maintenance: Maintenance) -> None:
    a_table_of_three_files(maintenance)
    lost = local_path(maintenance.sql("SELECT path FROM here.t.manifests")[0].path)
    lost.unlink()

    with pytest.raises(JobFailed, match=rf"\w+Exception: .*{lost.name}"):
        maintenance.run("t", "manifest-rewrite")


REFUSALS: dict[str, tuple[Callable[[Sql], object], str]] = {
    "a procedure's own check": (
        lambda sql: sql("CALL lake.system.rollback_to_snapshot('here.t', 1)"),
        "org.apache.iceberg.exceptions.ValidationException: Cannot roll back to unknown snapshot id: 1",
    ),
    "an analysis": (lambda sql: sql("SELECT * FROM nowhere"), "[TABLE_OR_VIEW_NOT_FOUND] The table or view"),
    "a statement that is none": (lambda sql: sql("SELEC 1"), "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'."),
    "a task": (lambda sql: sql("SELECT raise_error('out of luck')"), "[USER_RAISED_EXCEPTION] out of luck"),
    "Java called directly": (
        lambda sql: cast(Any, sql.spark._jvm).java.lang.Long.parseLong("x"),
        'java.lang.NumberFormatException: For input string: "x"',
    ),
    "Python on an executor": (
        lambda sql: sql.spark.range(1).mapInArrow(cast(Any, _broken), "id BIGINT").collect(),
        "org.apache.spark.api.python.PythonException: ValueError: not today",
    ),
}


def _broken(_batches: object) -> None:
    raise ValueError("not today")


@pytest.mark.parametrize("name", REFUSALS)
def test_the_reason_is_what_java_says(maintenance: Maintenance, name: str) -> None:
    act, said = REFUSALS[name]
    maintenance.sql("CREATE TABLE t (id BIGINT)")

    with pytest.raises(Exception) as raised:
        act(maintenance.sql)

    assert failure_reason(raised.value).startswith(said)
    assert error_text(raised.value) == failure_reason(raised.value)
    assert failure_finding(raised.value).text.endswith(failure_reason(raised.value))
