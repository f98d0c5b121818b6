"""Reports how many tasks of a running Spark statement are done."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nunatak_spark.installation import import_pyspark
from nunatak_spark.jobs import Progress, ProgressStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 1.0  # often enough for people, cheap beside a job that reads tables
GROUP, DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


@contextlib.contextmanager
def report_task_progress(spark: "SparkSession", text: str, progress: Progress) -> Iterator[None]:
    """Reports the done and total tasks of the block's statements; each count once, and the full total at the end."""
    reporter = _ProgressReporter(text, progress)
    watch = _watch_connect if import_pyspark("pyspark.sql.utils").is_remote() else _watch_local
    with watch(spark, reporter):
        yield
    reporter.finish()


class _ProgressReporter:
    def __init__(self, text: str, progress: Progress) -> None:
        self._text, self._progress, self._last = text, progress, (0, 0)

    def update(self, done: int, total: int) -> None:
        if total and (done, total) != self._last:
            self._last = (done, total)
            self._progress(ProgressStep(self._text, done, total))

    def finish(self) -> None:
        """Reports the total as done. Stages that Spark skipped never count as done, so its last count may be lower."""
        total = max(self._last[1], 1)
        self.update(total, total)


@contextlib.contextmanager
def _watch_connect(spark: Any, reporter: _ProgressReporter) -> Iterator[None]:
    def heard(stages: Any, **_: Any) -> None:
        found = list(stages or ())
        reporter.update(sum(one.num_completed_tasks for one in found), sum(one.num_tasks for one in found))

    spark.registerProgressHandler(heard)
    try:
        yield
    finally:
        spark.removeProgressHandler(heard)


@contextlib.contextmanager
def _watch_local(spark: "SparkSession", reporter: _ProgressReporter) -> Iterator[None]:
    """Tags the statements of this thread with a job group; another thread counts the tasks of that group."""
    context: Any = spark.sparkContext
    group, before = f"nunatak-{uuid4()}", {key: context.getLocalProperty(key) for key in (GROUP, DESCRIPTION)}
    tracker = context.statusTracker()
    ended = threading.Event()
    watcher = threading.Thread(target=_poll, args=(lambda: _count(tracker, group), reporter, ended), daemon=True)
    context.setLocalProperty(GROUP, group)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for key, value in before.items():
            context.setLocalProperty(key, value)


def _poll(count: Callable[[], tuple[int, int]], reporter: _ProgressReporter, ended: threading.Event) -> None:
    while not ended.wait(LOOK_SECONDS):
        reporter.update(*count())
    reporter.update(*count())


def _count(tracker: Any, group: str) -> tuple[int, int]:
    """Returns done and total tasks of the group; stages that Spark has dropped from its status store count as none."""
    jobs = [tracker.getJobInfo(one) for one in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
