"""Renders the results of a demo as one self-contained HTML page."""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal

from jinja2 import Environment, PackageLoader, StrictUndefined

from nunatak_spark.demo import engines, plot_geometry
from nunatak_spark.demo.demo_run import DemoResult

LOADER = PackageLoader("nunatak_spark.demo", ".")


def render(result: DemoResult, *, made_at: datetime, versions: Mapping[str, str], commands: Mapping[str, str]) -> str:
    """Returns the page; `commands` maps a sentence to the command to try."""
    environment = Environment(
        loader=LOADER, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "money": lambda text: f"{Decimal(text):,}",
        "seconds": seconds_text,
    }
    template = environment.get_template("page.html")
    before, after = result.before.health, result.after.health
    return template.render(
        result=result,
        made_at=made_at,
        versions=versions,
        commands=commands,
        revenue=revenue_plot(result),
        published_day=max(row.day for row in result.gold.rows).strftime("%d %b"),
        funnel=plot_geometry.bars(
            {
                "events in bronze": result.bronze.events,
                "of them sent again": result.bronze.resent,
                "unreadable": result.bronze.unreadable,
                "orders in silver": result.published.rows_after,
                "of them corrected": result.silver.corrected,
                "through the branch": result.published.rows_after - result.published.rows_before,
                "rows in gold": len(result.gold.rows),
            }
        ),
        pairs=(
            _pair("files that a scan opens", before.files, after.files),
            _pair("the same query", result.before.query_seconds, result.after.query_seconds, seconds_text),
            _pair("snapshots", before.snapshots, after.snapshots),
            _pair("bytes of data", before.size_bytes, after.size_bytes, size_text),
        ),
        arcs={health: plot_geometry.arc(health.score, 52) for health in (before, after)},
        faster=result.before.query_seconds / max(result.after.query_seconds, 0.001),
        agree=engines.answers_agree(result.answers),
        spans=plot_geometry.spans({act.title: act.seconds for act in result.acts}),
        problems=list(result.problems()),
    )


def revenue_plot(result: DemoResult) -> plot_geometry.StackedArea:
    days = sorted({row.day for row in result.gold.rows})
    countries = sorted({row.country for row in result.gold.rows})
    found = {(row.country, row.day): float(row.revenue) for row in result.gold.rows}
    series = {country: [found.get((country, day), 0.0) for day in days] for country in countries}
    largest_first = dict(sorted(series.items(), key=lambda pair: -sum(pair[1])))
    return plot_geometry.stacked_area([day.strftime("%d %b") for day in days], largest_first)


def _pair(
    name: str, before: float, after: float, text: Callable[[float], str] = "{:,}".format
) -> tuple[str, tuple[plot_geometry.Bar, ...]]:
    return name, plot_geometry.bars({"before": before, "after": after}, {"before": text(before), "after": text(after)})


def seconds_text(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def size_text(value: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:g} B"
