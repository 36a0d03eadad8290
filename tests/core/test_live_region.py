"""Live regions and redirected output on a terminal that is a text buffer."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest
from rich.console import Console

from syncline.core.live_region import (
    MAX_UNFINISHED_ROWS,
    LiveRegion,
    RedirectedStream,
    UnfinishedRows,
    redirected_output,
)


class Terminal(io.StringIO):
    """A text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def console(terminal: Terminal) -> Console:
    return Console(
        file=terminal, force_terminal=True, width=120, height=30, color_system=None, highlight=False
    )


@contextmanager
def before(terminal: Terminal) -> Iterator[None]:
    """The program runs in that terminal. (pytest puts its own streams in place between a fixture
    and the test.)
    """
    with redirect_stdout(terminal), redirect_stderr(terminal):
        yield


def test_whole_lines_are_printed_as_they_are(terminal, console) -> None:
    with before(terminal), redirected_output(console):
        print("[bold]x[/bold] half", end="")
        assert "half" not in terminal.getvalue()
        print(" and whole", flush=True)
        assert "[bold]x[/bold] half and whole\n" in terminal.getvalue()
        print("last", end="")
    assert terminal.getvalue().endswith("last\n")


def test_bars_show_their_last_state(terminal, console) -> None:
    with before(terminal), redirected_output(console):
        for step in range(1000):
            sys.stderr.write(f"\r{step} of 1000")
            sys.stderr.flush()
        assert terminal.getvalue() == ""
        sys.stderr.write("\n")
    assert terminal.getvalue() == "999 of 1000\n"


def test_stand_in_is_no_terminal_but_has_its_encoding(terminal, console) -> None:
    with before(terminal), redirected_output(console):
        assert not sys.stdout.isatty()
        assert sys.stdout.encoding is terminal.encoding


def test_log_handlers_write_above_the_table_meanwhile(terminal, console) -> None:
    handler = logging.StreamHandler(terminal)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with before(terminal), redirected_output(console):
            stream: object = handler.stream
            assert isinstance(stream, RedirectedStream)
            root.warning("careful")
        assert handler.stream is terminal
    finally:
        root.removeHandler(handler)
    assert "careful\n" in terminal.getvalue()


def test_streams_that_are_no_terminals_are_left_alone(console) -> None:
    file = io.StringIO()
    with redirect_stdout(file), redirected_output(console):
        assert sys.stdout is file


def test_stream_that_the_program_has_replaced_stays(terminal, console) -> None:
    own = io.StringIO()
    with before(terminal):
        with redirected_output(console):
            sys.stdout = own
        assert sys.stdout is own


def test_bar_whose_line_has_ended_comes_before_what_the_other_stream_prints_next(
    terminal, console
) -> None:
    with redirect_stdout(terminal), redirect_stderr(Terminal()), redirected_output(console):
        sys.stderr.write("\r100%\n")
        assert terminal.getvalue() == ""
        print("epoch 1 is done")
        assert terminal.getvalue() == "100%\nepoch 1 is done\n"


def test_unfinished_rows_are_offered_to_the_display(terminal, console) -> None:
    with before(terminal), redirected_output(console) as streams:
        sys.stderr.write("\r 10%")
        assert [stream.unfinished for stream in streams] == [(), (" 10%",)]


def test_ended_bar_is_printed_when_nothing_has_followed_for_a_while(terminal, console) -> None:
    with before(terminal), redirected_output(console) as streams:
        sys.stderr.write("\r100%\n")
        for _ in range(2):
            for stream in streams:
                stream.flush_settled()
        assert terminal.getvalue() == "100%\n"


UP = "\x1b[A"


def test_plain_lines_are_finished_when_they_end() -> None:
    rows = UnfinishedRows()
    assert rows.write("a\nb") == ["a"]
    assert rows.rows == ("b",)
    assert rows.write("c\n\nd\n") == ["bc", "", "d"]
    assert rows.finish() == []


def test_of_a_bar_only_the_last_state_is_left() -> None:
    rows = UnfinishedRows()
    for percent in range(100):
        assert rows.write(f"\r{percent}%") == []
    assert rows.rows == ("99%",)
    assert rows.write("\r100%\ndone\n") == ["100%", "done"]


def test_lines_that_end_as_on_windows_are_no_bars() -> None:
    assert UnfinishedRows().write("a\r\nb\r\n") == ["a", "b"]


def test_nested_bars_are_held_until_they_have_ended() -> None:
    rows = UnfinishedRows()
    said = rows.write("\router 0%")
    for percent in (0, 50, 100):
        said += rows.write("\n") + rows.write(f"\rinner {percent}%") + rows.write(UP)
    assert said == []
    assert rows.rows == ("outer 0%", "inner 100%")
    said += (
        rows.write("\n\r" + " " * 10 + "\r" + UP) + rows.write("\router 100%") + rows.write("\n")
    )
    assert said == []
    assert rows.write("all is done\n") == ["outer 100%", "all is done"]


def test_bar_that_has_ended_is_let_go_after_a_while_but_not_one_that_runs() -> None:
    rows = UnfinishedRows()
    rows.write("\r100%\n")
    assert rows.settle() == ["100%"]
    rows.write("\r5%")
    assert rows.settle() == []
    assert rows.rows == ("5%",)


def test_only_a_few_bars_are_held() -> None:
    rows = UnfinishedRows()
    said = [line for number in range(20) for line in rows.write(f"\rbar {number}\n")]
    assert said == [f"bar {number}" for number in range(20 - MAX_UNFINISHED_ROWS)]


def test_colours_before_a_letter_are_no_movement() -> None:
    assert UnfinishedRows().write("\x1b[31mA\n") == ["\x1b[31mA"]


def test_a_movement_may_arrive_in_pieces() -> None:
    rows = UnfinishedRows()
    for piece in ("\router\n\rinner", "\x1b", "[", "A", "\router 2"):
        assert rows.write(piece) == []
    assert rows.rows == ("outer 2", "inner")


def test_erased_text_is_not_left() -> None:
    rows = UnfinishedRows()
    rows.write("\r 10%\n\rinner\x1b[A\r\x1b[K")
    assert rows.rows == ("inner",)
    rows.write("\r\x1b[J")
    assert rows.is_empty


def test_a_saved_cursor_returns_to_the_text_before_it() -> None:
    rows = UnfinishedRows()
    rows.write("name? \x1bD\x1b[1A\x1b7\nbar\x1b[J\x1b8")
    assert rows.rows == ("name? ", "bar")
    assert rows.write("Ada\n") == ["name? Ada"]
    assert rows.rows == ("bar",)


@pytest.mark.parametrize("text", [UP, f"{UP}x\n", "\x1b[5Ax\n"])
def test_moving_above_the_first_row_does_no_harm(text: str) -> None:
    rows = UnfinishedRows()
    rows.write("a\n")
    assert rows.write(text) + rows.finish() == (["x"] if "x" in text else [])


def screen(terminal: Terminal, height: int = 30) -> Console:
    return Console(
        file=terminal,
        force_terminal=True,
        width=80,
        height=height,
        color_system=None,
        legacy_windows=False,
    )


@pytest.fixture
def xterm(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_one_region_per_terminal_until_it_is_closed_or_forgotten(xterm: Terminal) -> None:
    first = LiveRegion(screen(xterm))
    assert first.claim()
    assert not LiveRegion(screen(xterm)).claim()
    assert not first.close(), "it was never started"
    second = LiveRegion(screen(xterm))
    assert second.claim()
    del second
    assert LiveRegion(screen(xterm)).claim()


def test_terminal_without_cursor_movement_has_no_region(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not LiveRegion(screen(terminal)).claim()
    assert not LiveRegion(Console(file=io.StringIO())).claim()


def test_region_is_redrawn_on_refresh_and_the_last_frame_stays(xterm: Terminal) -> None:
    shown = "one"
    region = LiveRegion(screen(xterm), interval_s=None)
    region.start(lambda: shown)
    assert region.is_started
    assert "one" in xterm.getvalue()
    region.print("[above]")
    assert "[above]" in xterm.getvalue()
    shown = "two"
    region.refresh()
    assert "two" in xterm.getvalue()
    shown = "three"
    assert region.close()
    assert not region.close()
    assert xterm.getvalue().rpartition("three")[2].count("\n") == 1


def test_unfinished_rows_take_the_lines_that_the_region_leaves(xterm: Terminal) -> None:
    region = LiveRegion(screen(xterm, height=5), interval_s=None, transient=True)
    with before(xterm):
        region.start(lambda: "a\nb")
        for number in range(4):
            sys.stderr.write(f"\rbar {number}\n")
        start = len(xterm.getvalue())
        region.refresh()
        drawn = xterm.getvalue()[start:]
        assert [number for number in range(4) if f"bar {number}" in drawn] == [2, 3]
        region.close()
