"""The steps of the demo in order, their results, and whether they are as expected."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from nunatak_spark.demo import engines, medallion, upkeep, write_audit_publish
from nunatak_spark.demo.demo_context import DemoContext, measure_seconds
from nunatak_spark.demo.sample_data import DemoSize


@dataclass(frozen=True)
class StepTiming:
    title: str
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """All results of a demo."""

    size: DemoSize
    root: str
    bronze: medallion.Bronze
    silver: medallion.Silver
    gold: medallion.Gold
    refused: write_audit_publish.Audit
    published: write_audit_publish.Audit
    before: upkeep.TableCondition
    after: upkeep.TableCondition
    jobs: tuple[upkeep.JobDone, ...]
    answers: tuple[engines.EngineAnswer, ...]
    acts: tuple[StepTiming, ...]

    def problems(self) -> Iterator[str]:
        """Yields a sentence per unexpected result."""
        if self.refused.passed or self.refused.published:
            yield "the audit let a spoiled batch pass"
        if not (self.published.passed and self.published.published):
            yield "the audit refused a sound batch"
        for job in self.jobs:
            if job.state != "done":
                yield f"the job {job.type} is {job.state}: {job.remark}"
        if self.after.content != self.before.content:
            yield "maintenance changed what the table holds"
        if self.after.health.score <= self.before.health.score:
            yield f"the score is still {self.after.health.score}"
        if not engines.answers_agree(self.answers):
            yield "the engines do not agree"


def run_demo(context: DemoContext) -> DemoResult:
    """Runs the whole demo, on namespaces that do not exist yet."""
    say, acts = context.narrator.say, _StepTimer(context)
    with acts.act("Bronze", "Raw events of a shop land as they come: as text, some twice, some unreadable."):
        medallion.make_layers(context)
        bronze = medallion.land(context)
        say(f"{bronze.events:,} events, {bronze.resent:,} of them sent again, {bronze.unreadable:,} unreadable")
    with acts.act("Silver", "MERGE cleans them: one row for each order, and corrections in place."):
        silver = medallion.clean(context)
        say(f"{silver.orders:,} orders, {silver.corrected:,} of them corrected by a second MERGE")
    with acts.act("Write, audit, publish", "A batch is written to a branch and shown to readers only if it is sound."):
        refused = write_audit_publish.publish(context, spoiled=True)
        found = ", ".join(f"{count:,} {rule}" for rule, count in refused.violations.items() if count)
        say(f"a spoiled batch is caught on the branch: {found}; readers still see {refused.rows_after:,} orders")
        published = write_audit_publish.publish(context, spoiled=False)
        added = published.rows_after - published.rows_before
        say(f"a sound batch is published by fast_forward: {added:,} more orders, in one commit of the catalog")
    with acts.act("Gold", "Silver is summed up by day and country."):
        gold = medallion.aggregate(context)
        say(f"{len(gold.rows):,} rows, {gold.revenue:,} in all")
    with acts.act("The mess", f"A stream commits too often: {context.size.files:,} tiny files, and deletes on top."):
        upkeep.create_small_files(context)
        before = upkeep.inspect_table(context)
        _say_condition(context, before)
        for finding in before.health.findings:
            say(f"-{finding.points} {finding.check}: {finding.reason}")
    with acts.act("Maintenance", "Policies say what is due, and a worker does it: rows stay, files go."):
        jobs = upkeep.run_due_jobs(context)
        after = upkeep.inspect_table(context)
        _say_condition(context, after)
        same = "equal" if before.content == after.content else "DIFFERENT"
        say(f"fingerprints of all {after.content.rows:,} rows before and after are {same}: {after.content.sum}")
    with acts.act("Three engines, one answer", "The same question to gold through Spark, PyIceberg and DuckDB."):
        answers = engines.ask_all(context)
        for answer in answers:
            say(f"{answer.engine}: {len(answer.lines)} countries in {answer.seconds:.2f} s")
        say("all three say the same" if engines.answers_agree(answers) else "THEY DO NOT AGREE")
    return DemoResult(
        size=context.size,
        root=context.root,
        bronze=bronze,
        silver=silver,
        gold=gold,
        refused=refused,
        published=published,
        before=before,
        after=after,
        jobs=jobs,
        answers=answers,
        acts=tuple(acts.over),
    )


class _StepTimer:
    """Measures the steps."""

    def __init__(self, context: DemoContext) -> None:
        self._stage = context
        self.over: list[StepTiming] = []

    @contextlib.contextmanager
    def act(self, title: str, sentence: str) -> Iterator[None]:
        with self._stage.narrator.act(title, sentence), measure_seconds() as seconds:
            yield
        self.over.append(StepTiming(title, seconds[0]))


def _say_condition(context: DemoContext, condition: upkeep.TableCondition) -> None:
    health = condition.health
    context.narrator.say(
        f"score {health.score} of 100: {health.data_files:,} data files, {health.delete_files:,} delete files, "
        f"{health.snapshots} snapshots; the query takes {condition.query_seconds:.2f} s"
    )
