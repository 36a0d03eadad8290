"""Rows of the panel in terminals of all sizes and in notebooks."""

from __future__ import annotations

import io
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.cells import cell_len
from rich.console import Console

from syncline.runs.run_progress import Progress
from syncline.train.console.notebook_panel import snapshot_html
from syncline.train.console.panel import MAX_WIDTH, panel
from syncline.train.console.rows import Row, closing_lines, fitting, packed, rows
from syncline.train.console.snapshot import NodeShare, Phase, Snapshot
from syncline.train.controller.goodput import Goodput

SNAPSHOT = Snapshot(
    name="vit",
    path="/runs/vit",
    page="http://127.0.0.1:8265/run/0/vit",
    phase=Phase.TRAINING,
    running_s=65.0,
    attempt=2,
    restarts=1,
    start="from /runs/vit/checkpoint_000001",
    nodes=(NodeShare(hostname="host-a", workers=4, gpu_ids=("0", "1", "2", "5")),),
    metrics=(("loss", "0.125"), ("accuracy", "0.9")),
    reports=1234,
    reports_per_s=2.5,
    progress=Progress(done=3, total=12, unit="epoch", left_s=130.0),
    goodput=Goodput(
        total_s=60, compute=0.9, communication=0.05, data=0.03, report=0.01, restarts=0.01
    ),
    checkpoint="/runs/vit/checkpoint_000002",
    checkpoint_age_s=12.0,
    best_checkpoint="/runs/vit/checkpoint_000001",
)


def drawn(snapshot: Snapshot, width: int, height: int) -> list[str]:
    console = Console(
        record=True,
        width=width,
        height=height,
        color_system=None,
        force_terminal=True,
        file=io.StringIO(),
    )
    console.print(panel(snapshot, width, height))
    return console.export_text().splitlines()


def said(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    return {row.label: row.parts for row in rows(snapshot)}


def test_rows_have_all_values() -> None:
    assert said(SNAPSHOT) == {
        "progress": ("epoch 3 of 12", "25 %", "2 min 10 s left"),
        "metrics": ("loss 0.125", "accuracy 0.9"),
        "reports": ("1,234", "2.5 per second"),
        "workers": ("4 on host-a", "GPUs 0-2 5"),
        "attempt": ("number 2", "1 restart after failures"),
        "goodput": ("95.0 %", "data 3.0 %", "report 1.0 %", "restarts 1.0 %"),
        "checkpoint": ("checkpoint_000002", "12 s ago", "best: checkpoint_000001"),
        "began": ("from /runs/vit/checkpoint_000001",),
        "results": ("/runs/vit",),
        "page": ("http://127.0.0.1:8265/run/0/vit",),
    }


def test_unknown_values_have_no_row() -> None:
    assert said(Snapshot(name="vit", path="/runs/vit", phase=Phase.STARTING, running_s=0.0)) == {
        "results": ("/runs/vit",)
    }


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ([("a", 1, ())], ("1 on a",)),
        ([("a", 1, ("3",))], ("1 on a", "GPU 3")),
        ([("a", 2, ("GPU-1f", "GPU-2e"))], ("2 on a", "GPUs GPU-1f GPU-2e")),
        (
            [("a", 2, ("0", "1")), ("b", 1, ("0",))],
            ("3 on 2 nodes", "3 GPUs", "a: 2 (GPUs 0-1)", "b: 1 (GPU 0)"),
        ),
        ([(f"h{number}", 8, ()) for number in range(64)], ("512 on 64 nodes",)),
    ],
)
def test_workers_are_listed_by_node(
    shares: list[tuple[str, int, tuple[str, ...]]], text: tuple[str, ...]
) -> None:
    nodes = tuple(
        NodeShare(hostname=name, workers=workers, gpu_ids=gpus) for name, workers, gpus in shares
    )
    assert said(replace(SNAPSHOT, nodes=nodes))["workers"] == text


def test_parts_are_packed_into_lines_and_omitted_ones_counted() -> None:
    parts = [f"m{number} 0.5" for number in range(10)]
    assert packed(parts, 1000, 1) == [", ".join(parts)]
    assert packed(parts, 30, 3) == [
        "m0 0.5, m1 0.5, m2 0.5, m3 0.5,",
        "m4 0.5, m5 0.5, m6 0.5, m7 0.5,",
        "m8 0.5, m9 0.5",
    ]
    assert packed(parts, 30, 1) == ["m0 0.5, m1 0.5, and 8 more"]
    assert packed(["one that is far too long"], 5, 1) == ["one that is far too long"]


def test_rows_of_low_weight_are_dropped_first() -> None:
    made = [
        Row(label=name, parts=("x",), weight=weight)
        for name, weight in (("a", 1), ("b", 3), ("c", 2))
    ]
    assert [row.label for row in fitting(made, 2)] == ["b", "c"]
    assert fitting(made, 0) == []


@pytest.mark.parametrize("width", [1, 5, 20, 40, 60, 80, 120, 300])
@pytest.mark.parametrize("height", [1, 2, 4, 10, 24, 50])
def test_panel_fits_every_screen(width: int, height: int) -> None:
    many = replace(
        SNAPSHOT,
        metrics=tuple((f"layer_{number}/gradient", "0.123456") for number in range(60)),
        name="long" * 30,
    )
    lines = drawn(many, width, height)
    assert len(lines) <= max(1, height // 2)
    assert max(map(cell_len, lines)) <= min(width, MAX_WIDTH)


def test_wide_panel_has_frame_and_bar() -> None:
    text = "\n".join(drawn(SNAPSHOT, 100, 40))
    assert "╭─ vit: training, 1 min 05 s ─" in text
    assert "━" in text
    assert "epoch 3 of 12, 25 %, 2 min 10 s left" in text


def test_small_panel_has_the_most_important_rows_without_a_frame() -> None:
    assert [line.rstrip() for line in drawn(SNAPSHOT, 50, 8)] == [
        "vit: training, 1 min 05 s",
        "progress    epoch 3 of 12, 25 %, 2 min 10 s le…",
        "metrics     loss 0.125, accuracy 0.9",
        "attempt     number 2, 1 restart after failures",
    ]


def test_names_are_not_markup() -> None:
    assert "[bold]x[/bold] 1" in "\n".join(
        drawn(replace(SNAPSHOT, metrics=(("[bold]x[/bold]", "1"),)), 100, 40)
    )


def test_summary_of_finished_run_has_paths() -> None:
    assert closing_lines(replace(SNAPSHOT, phase=Phase.FINISHED)) == [
        "syncline: training vit finished after 1 min 05 s in 2 attempts "
        "with loss=0.125, accuracy=0.9",
        f"  {SNAPSHOT.goodput}",
        "  last checkpoint: /runs/vit/checkpoint_000002",
        "  best checkpoint: /runs/vit/checkpoint_000001",
        "  results: /runs/vit",
    ]


@pytest.mark.parametrize(
    ("phase", "how"), [(Phase.FAILED, "failed"), (Phase.INTERRUPTED, "was interrupted")]
)
def test_summary_of_unfinished_run_has_checkpoint(phase: Phase, how: str) -> None:
    lines = closing_lines(replace(SNAPSHOT, phase=phase, best_checkpoint=""))
    assert lines[0] == f"syncline: training vit {how} after 1 min 05 s in 2 attempts"
    assert lines[1:] == ["  last checkpoint: /runs/vit/checkpoint_000002", "  results: /runs/vit"]


def test_run_without_attempt_has_no_summary() -> None:
    assert closing_lines(replace(SNAPSHOT, phase=Phase.FAILED, attempt=0)) == []


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)


@pytest.mark.parametrize("phase", [Phase.TRAINING, Phase.FINISHED])
def test_html_escapes_everything(phase: Phase) -> None:
    evil = "<script>alert(1)</script>"
    node = NodeShare(hostname=evil, workers=1, gpu_ids=(evil,))
    snapshot = Snapshot(
        name=evil,
        path=evil,
        page=evil,
        phase=phase,
        running_s=1.0,
        attempt=1,
        start=evil,
        nodes=(node,),
        metrics=((evil, evil),),
        progress=SNAPSHOT.progress,
        checkpoint=evil,
        best_checkpoint=f"{evil}/b",
    )
    html = snapshot_html(snapshot)
    assert "&lt;script&gt;" in html
    assert Tags(html).found <= {"style", "div", "b", "table", "tr", "th", "td", "progress"}


def test_html_has_rows_of_panel() -> None:
    html = snapshot_html(SNAPSHOT)
    assert '<progress value="0.2500" max="1">' in html
    assert "<th>goodput</th><td>95.0 %, data 3.0 %" in html
