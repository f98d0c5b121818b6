"""The closing page: the figures of a performance as one HTML file that asks nobody for anything."""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal

from jinja2 import Environment, PackageLoader, StrictUndefined

from nunatak_spark.demo import engines, plot_geometry
from nunatak_spark.demo.demo_run import Play

LOADER = PackageLoader("nunatak_spark.demo", ".")


def render(play: Play, *, made_at: datetime, versions: Mapping[str, str], commands: Mapping[str, str]) -> str:
    """`commands` are what to try next: a sentence to what is typed."""
    environment = Environment(
        loader=LOADER, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "money": lambda text: f"{Decimal(text):,}",
        "seconds": seconds_text,
    }
    template = environment.get_template("page.html")
    before, after = play.before.health, play.after.health
    return template.render(
        play=play,
        made_at=made_at,
        versions=versions,
        commands=commands,
        revenue=revenue_plot(play),
        published_day=max(row.day for row in play.gold.rows).strftime("%d %b"),
        funnel=plot_geometry.bars(
            {
                "events in bronze": play.bronze.events,
                "of them sent again": play.bronze.resent,
                "unreadable": play.bronze.unreadable,
                "orders in silver": play.published.rows_after,
                "of them corrected": play.silver.corrected,
                "through the branch": play.published.rows_after - play.published.rows_before,
                "rows in gold": len(play.gold.rows),
            }
        ),
        pairs=(
            _pair("files that a scan opens", before.files, after.files),
            _pair("the same query", play.before.query_seconds, play.after.query_seconds, seconds_text),
            _pair("snapshots", before.snapshots, after.snapshots),
            _pair("bytes of data", before.size_bytes, after.size_bytes, size_text),
        ),
        arcs={health: plot_geometry.arc(health.score, 52) for health in (before, after)},
        faster=play.before.query_seconds / max(play.after.query_seconds, 0.001),
        agree=engines.agree(play.answers),
        spans=plot_geometry.spans({act.title: act.seconds for act in play.acts}),
        problems=list(play.problems()),
    )


def revenue_plot(play: Play) -> plot_geometry.StackedArea:
    days = sorted({row.day for row in play.gold.rows})
    countries = sorted({row.country for row in play.gold.rows})
    found = {(row.country, row.day): float(row.revenue) for row in play.gold.rows}
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
