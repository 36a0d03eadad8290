"""Progress bars of several workers on an emulated terminal, and above a live region."""

import random
import re

import pytest

from syncline.core.embedded.log_display import MOST_ROWS, NESTED_S, REDRAW_S, SETTLE_S, Display
from syncline.core.embedded.terminal_rows import Size
from syncline.core.live_region import UnfinishedRows


class Screen:
    """A terminal with endless history: the text that it shows, and the characters it received."""

    def __init__(self, columns=60, lines=24):
        self.size = Size(columns, lines)
        self.rows = [""]
        self.row = self.column = 0
        self.saved = (0, 0)
        self.received = 0

    def write(self, text):
        self.received += len(text)
        for token in re.findall("\x1b\\[[0-9;]*[A-Za-z]|\x1b.|.|\n", text):
            self.handle(token)

    def handle(self, token):
        top = max(0, len(self.rows) - self.size.lines)
        if token == "\n":
            self.column = 0
        if token in ("\n", "\x1bD"):
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append("")
        elif token in ("\r", "\x1b[G"):
            self.column = 0
        elif token == "\x1b7":
            self.saved = (self.row - top, self.column)
        elif token == "\x1b8":
            self.row, self.column = top + self.saved[0], self.saved[1]
        elif token == "\x1b[K":
            self.rows[self.row] = self.rows[self.row][: self.column]
        elif token == "\x1b[J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            self.rows[self.row + 1 :] = [""] * (len(self.rows) - self.row - 1)
        elif token.endswith("A") and token.startswith("\x1b["):
            self.row = max(top, self.row - int(token[2:-1] or 1))
        elif token.endswith("m") and token.startswith("\x1b["):
            pass
        else:
            assert token.isprintable(), repr(token)
            if self.column == self.size.columns:
                self.handle("\n")
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + token + row[self.column + 1 :]
            self.column += 1

    @property
    def text(self):
        """Rows with text."""
        return [row.rstrip() for row in self.rows if row.strip()]


class Terminal:
    """A display whose streams are terminals, on one screen."""

    def __init__(self, *labels, screen=None, streams=("out", "err")):
        self.now = 100.0
        self.shown = {"out": "", "err": ""}
        self.screen = screen or Screen()
        self.streams = streams
        self.display = Display(lambda stream: self.screen.size if stream in self.streams else None)
        for number, label in enumerate(labels, 1):
            self.display.name(number, label, always=True)

    def write(self, number, text, stream="out"):
        return self.keep(self.display.write(number, stream, text, self.now))

    def tick(self, seconds):
        """Let time pass as the timer would: at each moment that the display asks for."""
        end = self.now + seconds
        while (moment := self.display.next_moment()) is not None and moment <= end:
            self.now = max(self.now, moment)
            self.keep(self.display.tick(self.now))
        self.now = end

    def flush(self):
        return self.keep(self.display.flush(self.now))

    def end(self, number):
        return self.keep(self.display.end(number))

    def keep(self, texts):
        for stream, text in texts:
            self.shown[stream] += text
            if stream in self.streams:
                self.screen.write(text)
        return "".join(text for _, text in texts)

    @property
    def text(self):
        return self.screen.text


def test_each_bar_has_one_row_on_a_terminal():
    terminal = Terminal("A", "B")
    for percent in range(0, 101, 10):
        for number in (1, 2):
            terminal.write(number, f"\r{percent}% of {number}", "err")
        terminal.tick(REDRAW_S)
        assert terminal.text == [f"[A] {percent}% of 1", f"[B] {percent}% of 2"]
    terminal.write(2, "\n", "err")
    terminal.tick(REDRAW_S)
    assert terminal.text == ["[B] 100% of 2", "[A] 100% of 1"]
    terminal.write(1, "\n", "err")
    assert terminal.text == ["[B] 100% of 2", "[A] 100% of 1"]


def test_lines_of_both_streams_are_printed_above_the_bars():
    terminal = Terminal("A", "B", "C")
    for number in (1, 2):
        terminal.write(number, f"\rbar {number}", "err")
    terminal.write(1, "printed\n", "out")
    terminal.write(3, "warned\n", "err")
    terminal.tick(REDRAW_S)
    assert terminal.text == ["[A] printed", "[C] warned", "[A] bar 1", "[B] bar 2"]


def test_lines_wait_for_the_next_redraw_and_keep_their_order():
    terminal = Terminal("A", "B")
    terminal.write(1, "\r 10%", "err")
    assert terminal.write(2, "one\n", "out") == ""
    assert terminal.write(2, "two\n", "err") == ""
    assert terminal.write(2, "three\n", "out") == ""
    assert terminal.display.next_moment() == terminal.now + REDRAW_S
    terminal.tick(REDRAW_S)
    assert terminal.text == ["[B] one", "[B] two", "[B] three", "[A]  10%"]


def test_lines_do_not_wait_without_bars():
    terminal = Terminal("A", "B")
    assert terminal.write(1, "one\n") == "[A] one\n"
    assert terminal.write(2, "two\n") == "[B] two\n"


def test_an_ended_bar_is_a_line_above_those_that_run():
    terminal = Terminal("A", "B")
    terminal.write(1, "\r100% of 1", "err")
    terminal.write(2, "\r 50% of 2", "err")
    terminal.write(1, "\n", "err")
    terminal.write(2, "printed\n", "out")
    terminal.tick(SETTLE_S + REDRAW_S)
    assert terminal.text == ["[B] printed", "[A] 100% of 1", "[B]  50% of 2"]
    terminal.tick(NESTED_S)
    terminal.write(2, "\r100% of 2\n", "err")
    assert terminal.text[-1] == "[B] 100% of 2"
    terminal.tick(100)
    assert terminal.display.next_moment() is None


def test_the_end_of_a_worker_ends_its_bar():
    terminal = Terminal("A", "B")
    terminal.write(1, "\r 10%", "err")
    terminal.write(2, "\r 20%", "err")
    terminal.end(1)
    terminal.tick(REDRAW_S)
    assert terminal.text == ["[A]  10%", "[B]  20%"]
    terminal.flush()
    terminal.write(2, "end\n")
    assert terminal.text == ["[A]  10%", "[B]  20%", "[B] end"]


def test_bars_of_the_ranks_are_in_order():
    terminal = Terminal("rank 10", "rank 9")
    for number in (1, 2):
        terminal.write(number, f"\r{number}", "err")
    terminal.tick(REDRAW_S)
    assert terminal.text == ["[rank 9] 2", "[rank 10] 1"]


def test_of_many_bars_the_first_ones_are_shown():
    for lines, count in ((24, MOST_ROWS), (6, 3)):
        terminal = Terminal(*"ABCDEFGHIJKL", screen=Screen(lines=lines))
        for number in range(1, 13):
            terminal.write(number, "\r 10%", "err")
        terminal.tick(REDRAW_S)
        bars = [f"[{label}]  10%" for label in "ABCDEFGH"[:count]]
        assert terminal.text == [*bars, f"... and {12 - count} more"]


def test_rows_do_not_wrap():
    terminal = Terminal("A", screen=Screen(columns=20))
    for text in ("\r" + "x" * 100, "\r" + "\u754c" * 50, "\r\x1b[31m" + "x" * 50 + "\x1b[0m"):
        terminal.write(1, text, "err")
        terminal.tick(REDRAW_S)
        assert len(terminal.text) == 1
    assert terminal.text == ["[A] " + "x" * 15]
    terminal.write(1, "\r" + "\u754c" * 50, "err")
    terminal.tick(REDRAW_S)
    assert terminal.text == ["[A] " + "\u754c" * 7]


def test_nested_bars_are_redrawn_in_place():
    terminal = Terminal("A", "B")
    terminal.write(2, "\rother", "err")
    for outer in range(3):
        terminal.write(1, f"\router {outer}", "err")
        for step in range(20):
            for piece in ("\n", f"\rinner {step}", "\x1b[A"):
                terminal.write(1, piece, "err")
            terminal.tick(0.05)
        terminal.tick(1)
        assert terminal.text == [f"[A] outer {outer}", "[A] inner 19", "[B] other"]
    terminal.write(1, "\n\r        \r\x1b[A\router 3\n", "err")
    terminal.tick(1)
    assert terminal.text == ["[A] outer 3", "[B] other"]


def test_the_bar_of_a_single_worker_moves_into_the_block():
    terminal = Terminal()
    terminal.write(1, "\r 10%", "err")
    terminal.write(2, "line\n", "out")
    terminal.write(1, "\r 20%", "err")
    terminal.tick(REDRAW_S)
    assert terminal.text == ["(worker 2) line", "(worker 1)  20%"]


def test_lines_of_the_driver_are_not_overwritten():
    terminal = Terminal("A", "B")
    written = []
    for step in range(20):
        for number in (1, 2):
            terminal.write(number, f"\r{step} of {number}", "err")
        terminal.tick(REDRAW_S)
        written.append(f"driver {step}")
        terminal.screen.write(f"driver {step}\n")
    assert [row for row in terminal.text if row.startswith("driver")] == written
    terminal.tick(10)
    assert terminal.text == [*written, "[A] 19 of 1", "[B] 19 of 2"]


def test_a_prompt_of_the_driver_stays():
    terminal = Terminal("A")
    terminal.write(1, "\r 10%", "err")
    terminal.screen.write("name? ")
    terminal.write(1, "\r 20%", "err")
    terminal.tick(REDRAW_S)
    terminal.screen.write("Ada\n")
    terminal.tick(10)
    assert terminal.text == ["name? Ada", "[A]  20%"]


def test_fast_bars_are_redrawn_at_a_limited_rate():
    terminal = Terminal(*"ABCD")
    for step in range(1000):
        for number in range(1, 5):
            terminal.write(number, f"\r{step:060}", "err")
        terminal.tick(0.001)
    assert terminal.screen.received < 12 * 4 * 80


def test_a_stream_that_is_replaced_gets_no_control_sequences():
    terminal = Terminal("A", "B")
    terminal.write(1, "\r 10%", "err")
    terminal.streams = ()
    terminal.shown = {"out": "", "err": ""}
    terminal.write(2, "\r 20%", "err")
    terminal.write(2, "line\n", "out")
    terminal.write(1, "\r100%\n", "err")
    terminal.write(2, "\r100%\n", "err")
    terminal.tick(1)
    assert terminal.shown == {"out": "[B] line\n", "err": "[A] 100%\n[B] 100%\n"}


def test_a_terminal_beside_a_file():
    terminal = Terminal("A", "B", streams=("err",))
    for number in (1, 2):
        terminal.write(number, f"\rbar {number}", "err")
    terminal.write(1, "printed\n", "out")
    terminal.tick(1)
    assert terminal.text == ["[A] bar 1", "[B] bar 2"]
    assert terminal.shown["out"] == "[A] printed\n"


class Panel(Terminal):
    """A display whose streams are redirected above a live region."""

    def __init__(self, *labels):
        super().__init__(*labels)
        self.lines = []
        self.unfinished = {"out": UnfinishedRows(), "err": UnfinishedRows()}

    def keep(self, texts):
        for stream, text in texts:
            self.lines += self.unfinished[stream].write(text)
        return ""

    @property
    def text(self):
        return [*self.lines, *self.unfinished["out"].rows, *self.unfinished["err"].rows]


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("kind", [Terminal, Panel])
@pytest.mark.parametrize("seed", range(5))
def test_random_bars_and_lines_are_shown_once(kind, workers, seed):
    generator = random.Random(seed)
    terminal = kind(*(f"rank {rank}" for rank in range(workers)))
    written, steps = [], dict.fromkeys(range(1, workers + 1), 0)
    for index in range(1000):
        number = generator.randint(1, workers)
        action = generator.random()
        if action < 0.3:
            line = f"line {index}" + "-" * generator.choice([0, 0, 0, 70])
            terminal.write(number, f"{line}\n", "out")
            written.append(f"[rank {number - 1}] {line}")
        elif action < 0.35 and steps[number]:
            terminal.write(number, f"\rbar {number} ends at {index}\n", "err")
            written.append(f"[rank {number - 1}] bar {number} ends at {index}")
            steps[number] = 0
        else:
            text = f"\rbar {number} {index}{'#' * generator.randint(0, 50)}"
            cut = generator.randint(0, len(text))
            terminal.write(number, text[:cut], "err")
            terminal.write(number, text[cut:], "err")
            steps[number] = index
        terminal.tick(generator.choice([0, 0, 0.01, 0.3]))
    terminal.tick(1)
    running = [number for number, step in steps.items() if step]
    bars = terminal.text[len(terminal.text) - len(running) :]
    assert [bar.split("#")[0] for bar in bars] == [
        f"[rank {number - 1}] bar {number} {steps[number]}" for number in running
    ]
    shown = "".join(terminal.text[: len(terminal.text) - len(running)])
    assert shown.count("[rank") == len(written)
    assert all(shown.count(line) for line in written)
