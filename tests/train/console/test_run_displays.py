"""Choice of the display, and displays that draw snapshots."""

from __future__ import annotations

import io
import re
import sys
import types
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from syncline.testing.waiting import eventually
from syncline.train.config import LoggingConfig
from syncline.train.console.console_reporter import display_for
from syncline.train.console.display import Display, LineDisplay, NullDisplay
from syncline.train.console.notebook_panel import NotebookPanel
from syncline.train.console.snapshot import Phase, Snapshot
from syncline.train.console.terminal_panel import TerminalPanel
from syncline.train.run_config import RunConfig
from syncline.train.workers import reservation as placement

SNAPSHOT = Snapshot(name="vit", path="/runs/vit", phase=Phase.TRAINING, running_s=5.0, attempt=1)


class Terminal(io.StringIO):
    """Text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def chosen(terminal: io.StringIO, *arguments: Any, **options: Any) -> Display:
    with redirect_stderr(terminal):
        return display_for(*arguments, **options)


def drawing_on(terminal: Terminal, clock: Clock | None = None) -> TerminalPanel:
    console = Console(
        file=terminal, force_terminal=True, width=100, height=40, color_system=None, highlight=False
    )
    return TerminalPanel(console, clock or Clock())


class TestChoice:
    def test_terminals_use_panel_and_other_streams_lines(self, terminal: Terminal) -> None:
        assert isinstance(chosen(terminal), TerminalPanel)
        assert isinstance(chosen(io.StringIO()), LineDisplay)

    def test_terminal_without_cursor_movement_uses_lines(
        self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(chosen(terminal), LineDisplay)

    def test_terminal_is_left_to_training_functions_in_this_process(
        self, terminal: Terminal
    ) -> None:
        assert isinstance(chosen(terminal, may_draw=False), LineDisplay)

    def test_one_panel_at_a_time(self, terminal: Terminal) -> None:
        first = chosen(terminal)
        assert isinstance(chosen(terminal), LineDisplay)
        first.close()
        assert isinstance(chosen(terminal), TerminalPanel)

    def test_unclosed_panel_is_released(self, terminal: Terminal) -> None:
        chosen(terminal)
        assert isinstance(chosen(terminal), TerminalPanel)

    @pytest.mark.parametrize(
        "config", [RunConfig(verbose=0), RunConfig(logging_config=LoggingConfig(log_level="error"))]
    )
    def test_quiet_runs_show_nothing(self, terminal: Terminal, config: RunConfig) -> None:
        assert isinstance(chosen(terminal, config), NullDisplay)
        assert isinstance(chosen(terminal, RunConfig(verbose=2)), TerminalPanel)

    def test_trials_show_nothing(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(placement, "_host", object())
        assert isinstance(chosen(terminal), NullDisplay)

    def test_notebooks_use_panel_in_cell(
        self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
        monkeypatch.setitem(sys.modules, "IPython.display", types.ModuleType("IPython.display"))
        assert isinstance(chosen(terminal), NotebookPanel)


class TestTerminalPanel:
    def test_is_drawn_from_first_snapshot_and_replaced_by_summary(self, terminal: Terminal) -> None:
        display = drawing_on(terminal)
        display.show(SNAPSHOT)
        assert "vit: training, 5.0 s" in terminal.getvalue()
        assert "\x1b[?25l" in terminal.getvalue()
        display.show(replace(SNAPSHOT, phase=Phase.FINISHED))
        display.close()
        display.close()
        after = terminal.getvalue().rpartition("\x1b[?25h")[2]
        assert (
            re.sub(r"\x1b\[\d[AK]|\r", "", after)
            == "syncline: training vit finished after 5.0 s\n  results: /runs/vit\n"
        )

    def test_time_advances_between_snapshots(self, terminal: Terminal) -> None:
        clock = Clock()
        display = drawing_on(terminal, clock)
        display.show(SNAPSHOT)
        clock.now = 60.0
        try:
            eventually(lambda: "vit: training, 1 min 05 s" in terminal.getvalue())
        finally:
            display.close()

    def test_events_and_program_output_are_printed_above(self, terminal: Terminal) -> None:
        display = drawing_on(terminal)
        with redirect_stdout(terminal), redirect_stderr(terminal):
            display.show(SNAPSHOT)
            display.print_event("syncline: a restart\nand why")
            display.print_status("what the panel says")
            print("[red]as it is[/red]")
            print("half", end="")
            display.close()
            assert sys.stdout is terminal
        assert "syncline: a restart\nand why\n" in terminal.getvalue()
        assert "[red]as it is[/red]\n" in terminal.getvalue()
        assert "what the panel says" not in terminal.getvalue()
        assert terminal.getvalue().endswith("half\n")

    def test_bar_of_program_is_drawn_with_panel(self, terminal: Terminal) -> None:
        display = drawing_on(terminal)
        with redirect_stdout(terminal), redirect_stderr(terminal):
            display.show(SNAPSHOT)
            sys.stderr.write("\r 10%|#   |")
            try:
                eventually(lambda: " 10%|#   |" in terminal.getvalue())
            finally:
                display.close()

    def test_interruption_prints_summary(self, terminal: Terminal) -> None:
        display = drawing_on(terminal)
        display.show(SNAPSHOT)
        display.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert "syncline: training vit was interrupted after 5.0 s" in terminal.getvalue()

    def test_without_snapshot_events_are_printed_without_summary(
        self, terminal: Terminal, capsys: pytest.CaptureFixture[str]
    ) -> None:
        display = drawing_on(terminal)
        display.print_event("attached")
        display.close(interrupted=True)
        assert (terminal.getvalue(), capsys.readouterr().err) == ("", "attached\n")


class Cell:
    """Stands for IPython's module: remembers what is in the cell."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def HTML(self, text: str) -> str:
        return text

    def display(self, page: str, display_id: bool) -> Cell:
        assert display_id
        self.pages.append(page)
        return self

    def update(self, page: str) -> None:
        self.pages[-1] = page


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Cell()
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", cell)
    return cell


def test_notebook_has_one_output_that_ends_with_summary(cell: Cell) -> None:
    display = NotebookPanel(Clock())
    display.show(SNAPSHOT)
    assert "vit: training, 5.0 s" in cell.pages[0]
    display.show(replace(SNAPSHOT, running_s=7.0))
    eventually(lambda: "7.0 s" in cell.pages[0])
    display.show(replace(SNAPSHOT, phase=Phase.FINISHED))
    display.close()
    display.close()
    assert len(cell.pages) == 1
    assert "syncline: training vit finished after 5.0 s" in cell.pages[0]
