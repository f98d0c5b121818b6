"""What `make test` says: each failed test as it fails, what was not run and why, and the count as the last line."""

from collections import Counter

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A run takes half an hour, and pytest names what failed at its end only."""
    if report.failed:
        print(f"\nFAILED {report.nodeid}", flush=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.option.collectonly:
        return
    skipped = reporter.stats.get("skipped", []) + reporter.stats.get("xfailed", [])
    if skipped:
        reporter.write_line(not_run([(report.nodeid.partition("::")[0], reason_of(report)) for report in skipped]))
    passed = len(reporter.stats.get("passed", []))
    failed = len(reporter.stats.get("failed", [])) + len(reporter.stats.get("error", []))
    reporter.write_line(f"{passed} passed, {failed} failed, {len(skipped)} skipped")


def reason_of(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return getattr(report, "wasxfail", "") or "no reason given"


def not_run(skips: list[tuple[str, str]]) -> str:
    """One loud line: how many tests of which file did not run, and why."""
    counts = Counter(skips)
    return "NOT RUN: " + "; ".join(f"{count} in {file} ({reason})" for (file, reason), count in sorted(counts.items()))
