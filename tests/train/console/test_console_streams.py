"""What the program prints while a display is drawn, on a terminal that is a text."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest
from rich.console import Console

from syncline.train.console.streams import AboveDisplay, redirected


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
    with before(terminal), redirected(console):
        print("[bold]x[/bold] half", end="")
        assert "half" not in terminal.getvalue()
        print(" and whole", flush=True)
        assert "[bold]x[/bold] half and whole\n" in terminal.getvalue()
        print("last", end="")
    assert terminal.getvalue().endswith("last\n")


def test_bars_show_their_last_state(terminal, console) -> None:
    with before(terminal), redirected(console):
        for step in range(1000):
            sys.stderr.write(f"\r{step} of 1000")
            sys.stderr.flush()
        assert terminal.getvalue() == ""
        sys.stderr.write("\n")
    assert terminal.getvalue() == "999 of 1000\n"


def test_stand_in_is_no_terminal_but_has_its_encoding(terminal, console) -> None:
    with before(terminal), redirected(console):
        assert not sys.stdout.isatty()
        assert sys.stdout.encoding is terminal.encoding


def test_log_handlers_write_above_the_table_meanwhile(terminal, console) -> None:
    handler = logging.StreamHandler(terminal)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with before(terminal), redirected(console):
            assert isinstance(handler.stream, AboveDisplay)
            root.warning("careful")
        assert handler.stream is terminal
    finally:
        root.removeHandler(handler)
    assert "careful\n" in terminal.getvalue()


def test_streams_that_are_no_terminals_are_left_alone(console) -> None:
    file = io.StringIO()
    with redirect_stdout(file), redirected(console):
        assert sys.stdout is file


def test_stream_that_the_program_has_replaced_stays(terminal, console) -> None:
    own = io.StringIO()
    with before(terminal):
        with redirected(console):
            sys.stdout = own
        assert sys.stdout is own


def test_bar_whose_line_has_ended_comes_before_what_the_other_stream_prints_next(
    terminal, console
) -> None:
    with redirect_stdout(terminal), redirect_stderr(Terminal()), redirected(console):
        sys.stderr.write("\r100%\n")
        assert terminal.getvalue() == ""
        print("epoch 1 is done")
        assert terminal.getvalue() == "100%\nepoch 1 is done\n"


def test_unfinished_rows_are_offered_to_the_display(terminal, console) -> None:
    with before(terminal), redirected(console) as streams:
        sys.stderr.write("\r 10%")
        assert [stream.unfinished for stream in streams] == [(), (" 10%",)]


def test_ended_bar_is_printed_when_nothing_has_followed_for_a_while(terminal, console) -> None:
    with before(terminal), redirected(console) as streams:
        sys.stderr.write("\r100%\n")
        for _ in range(2):
            for stream in streams:
                stream.settle()
        assert terminal.getvalue() == "100%\n"
