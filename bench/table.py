"""Printed tables: one line per metric; ratios are syncline's value divided by the peer's. Pure."""

from collections.abc import Sequence

from rich.table import Table

from bench.rows import RAY, Group
from bench.summary import Line, Verdict

_COLOURS: dict[Verdict, str] = {
    "met": "green",
    "missed": "bold red",
    "no target": "dim",
    "not measured": "yellow",
}


def number(value: float | None) -> str:
    """Format three significant digits: `0.0123`, `1.23`, `12 300`; a dash for None."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def factor(value: float | None) -> str:
    """Format a ratio: `1.008x`, `23.5x`, `0.0004x`; a dash for None."""
    if value is None:
        return "-"
    if value >= 10:
        return f"{value:,.0f}x".replace(",", " ") if value >= 100 else f"{value:.1f}x"
    return f"{value:.3f}x" if value >= 0.1 else f"{value:.2g}x"


def extent(span: tuple[float, float] | None) -> str:
    """Format lowest and highest value: `1.2-1.4`; a dash for None."""
    return "-" if span is None else f"{number(span[0])}-{number(span[1])}"


TITLES: dict[Group, str] = {
    "machine": "on this machine: medians over the rounds; ratios are ours divided by theirs",
    "train": "training on this machine: medians over the rounds; ratios are ours divided by theirs",
    "data": "data on this machine: medians over the rounds; ratios are ours divided by theirs",
    "tune": "searches on this machine: medians over the rounds; ratios are ours divided by theirs",
    "serve": "serving on this machine: medians over the rounds; ratios are ours divided by theirs",
    "rl": "reinforcement learning on this machine, one thread: medians over the rounds; ratios are "
    "ours divided by theirs",
    "runs": "run records and the dashboard: medians over the rounds",
    "cluster": "on one Ray cluster: medians over the rounds; ratios are ours divided by theirs",
}


def render(lines: Sequence[Line]) -> list[Table]:
    """Return one table for each group that has lines."""
    grouped = [
        (title, [line for line in lines if line.group == group]) for group, title in TITLES.items()
    ]
    return [_table(own, title) for title, own in grouped if own]


def _table(lines: Sequence[Line], title: str) -> Table:
    """Return one table; a metric with several peers has one line per peer in its cells."""
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("workload", overflow="fold")
    table.add_column("unit", no_wrap=True)
    table.add_column("syncline", justify="right", no_wrap=True)
    table.add_column("range", justify="right", no_wrap=True, style="dim")
    table.add_column(RAY, justify="right", no_wrap=True)
    table.add_column("ratio to Ray", justify="right", no_wrap=True)
    table.add_column("other peer", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("range", justify="right", no_wrap=True, style="dim")
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("target", overflow="fold")
    table.add_column("", no_wrap=True)
    for line in lines:
        table.add_row(
            line.label,
            line.unit,
            number(line.ours),
            extent(line.ours_span),
            number(line.ray),
            factor(line.ray_ratio),
            "\n".join(peer.name for peer in line.peers),
            "\n".join(number(peer.value) for peer in line.peers),
            "\n".join(extent(peer.span) for peer in line.peers),
            "\n".join(factor(peer.ratio) for peer in line.peers),
            line.target,
            f"[{_COLOURS[line.verdict]}]{line.verdict}[/]",
        )
    return table
