"""The driver's streams: labels of several workers, counted repeats, bars in files."""

import random

import pytest

from syncline.core.embedded.line_deduplicator import WINDOW_S
from syncline.core.embedded.log_display import INTERIM_S, LONGEST_LINE, PARTIAL_S, Display


class Terminal:
    """A display with its clock and its output."""

    def __init__(self, *labels):
        self.display = Display()
        self.now = 100.0
        self.shown = {"out": "", "err": ""}
        for number, label in enumerate(labels, 1):
            self.display.name(number, label)

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
        return "".join(text for _, text in texts)

    @property
    def out(self):
        return self.shown["out"]


def shared(*labels):
    """A terminal with several writers already, and nothing on it."""
    terminal = Terminal(*labels)
    for number in range(1, len(labels) + 1):
        terminal.write(number, f"hello of {number}\n")
    terminal.tick(10)
    terminal.shown["out"] = ""
    return terminal


# -- one writer


def test_output_of_a_single_worker_passes_unchanged():
    terminal = Terminal("A")
    assert terminal.write(1, "one\n\n  two\r\n") == "one\n\n  two\r\n"
    assert terminal.write(1, "one\n") == "one\n"
    assert terminal.write(1, "warning\n", "err") == "warning\n"
    assert terminal.shown == {"out": "one\n\n  two\r\none\n", "err": "warning\n"}


def test_a_prompt_of_a_single_worker_is_shown_after_a_delay():
    terminal = Terminal("A")
    assert terminal.write(1, "name? ") == ""
    assert terminal.display.next_moment() == terminal.now + PARTIAL_S
    terminal.tick(PARTIAL_S)
    assert terminal.out == "name? "
    assert terminal.display.next_moment() is None
    assert terminal.write(1, "Ada\n") == "Ada\n"


def test_a_bar_of_a_single_worker_passes_immediately():
    terminal = Terminal("A")
    assert terminal.write(1, "\r 10%") == "\r 10%"
    assert terminal.write(1, "\r 20%") == "\r 20%"
    assert terminal.write(1, "\rdone\nnext\n") == "\rdone\nnext\n"


def test_split_output_of_a_single_worker_passes_byte_for_byte():
    alphabet = "ab \r\n\t\x1b[A\u00e9"
    generator = random.Random(0)
    text = "".join(generator.choice(alphabet) for _ in range(5_000)) + "x" * (2 * LONGEST_LINE)
    terminal = Terminal("A")
    position = 0
    while position < len(text):
        size = generator.choice([1, 2, 7, 300, 30_000])
        terminal.write(1, text[position : position + size])
        terminal.tick(generator.choice([0, 0, PARTIAL_S]))
        position += size
    terminal.flush()
    assert terminal.out == text


def test_the_end_of_a_single_worker_shows_held_text():
    terminal = Terminal("A")
    terminal.write(1, "no newline")
    assert terminal.end(1) == "no newline"
    assert terminal.write(2, "next\n") == "\n(worker 2) next\n"


# -- several writers


def test_labels_appear_with_the_second_writer():
    terminal = Terminal("A pid=1", "B pid=2")
    terminal.write(1, "a1\n")
    terminal.write(2, "b1\n")
    terminal.write(1, "a2\n")
    assert terminal.out == "a1\n(B pid=2) b1\n(A pid=1) a2\n"


def test_a_worker_that_writes_both_streams_is_one_writer():
    terminal = Terminal("A")
    terminal.write(1, "a\n")
    terminal.write(1, "b\n", "err")
    assert terminal.shown == {"out": "a\n", "err": "b\n"}


def test_a_label_may_change():
    terminal = shared("A", "B")
    terminal.write(1, "x\n")
    terminal.display.name(1, "C")
    terminal.write(1, "y\n")
    assert terminal.out == "(A) x\n(C) y\n"


def test_the_second_writer_does_not_continue_the_first_ones_line():
    terminal = Terminal("A", "B")
    terminal.write(1, "a: ")
    terminal.write(2, "b\n")
    terminal.write(1, "done\n")
    assert terminal.out == "a: \n(B) b\n(A) a: done\n"


def test_the_first_worker_continues_its_line_without_interruption():
    terminal = Terminal("A", "B")
    terminal.write(1, "a: ")
    terminal.write(2, "b", "err")
    terminal.write(1, "done\n")
    assert terminal.out == "a: done\n"


def test_split_lines_are_shown_whole():
    terminal = shared("A", "B")
    terminal.write(1, "on")
    terminal.write(2, "tw")
    terminal.write(1, "e\n")
    terminal.write(2, "o\nthree\n")
    assert terminal.out == "(A) one\n(B) two\n(B) three\n"


def test_a_row_of_dots_grows_in_place():
    terminal = shared("A", "B")
    for _ in range(3):
        terminal.write(1, ".")
        terminal.tick(1)
    terminal.write(1, "\n")
    assert terminal.out == "(A) ...\n"


def test_windows_line_ends_are_line_ends():
    terminal = shared("A", "B")
    terminal.write(1, "x\r")
    terminal.write(1, "\ny\r\n")
    terminal.flush()
    assert terminal.out.endswith("(A) x\n(A) y\n")


def test_a_very_long_line_passes_in_pieces():
    terminal = shared("A", "B")
    text = "".join(chr(97 + index % 26) for index in range(3 * LONGEST_LINE))
    for position in range(0, len(text), 10_000):
        terminal.write(1, text[position : position + 10_000])
    assert len(terminal.out) > LONGEST_LINE
    terminal.write(1, "\nnext\n")
    assert terminal.out == f"(A) {text}\n(A) next\n"


def test_a_long_line_that_was_cut_off_does_not_end_in_an_empty_one():
    terminal = shared("A", "B")
    terminal.write(1, "x" * (LONGEST_LINE + 1))
    terminal.write(2, "b\n")
    terminal.write(1, "\n")
    assert terminal.out == f"(A) {'x' * (LONGEST_LINE + 1)}\n(B) b\n"


def test_the_end_of_a_worker_shows_its_unfinished_line():
    terminal = shared("A", "B")
    terminal.write(1, "no newline")
    assert terminal.end(1) == "(A) no newline\n"
    assert terminal.end(1) == ""
    assert terminal.end(7) == ""


def test_flush_shows_everything_and_leaves_the_cursor_at_the_start_of_a_line():
    terminal = shared("A", "B")
    terminal.write(1, "same\n")
    terminal.write(2, "same\n")
    terminal.write(2, "partial")
    terminal.flush()
    assert sorted(terminal.out.splitlines()) == ["(A) same", "(B) partial", "(B) same"]
    assert terminal.out.endswith("\n")
    assert terminal.display.next_moment() is None
    assert terminal.flush() == ""
    assert terminal.end(2) == ""


# -- repeats


def test_equal_lines_of_many_workers_are_counted():
    terminal = shared("A", "B", "C", "D")
    for number in (1, 2, 3, 4):
        terminal.write(number, "loading\n")
    assert terminal.out == "(A) loading\n"
    terminal.tick(WINDOW_S)
    assert terminal.out == "(A) loading\n(D) loading [repeated 3x across workers]\n"
    assert terminal.display.repeated_lines == 3


def test_recent_lines_of_the_first_worker_are_counted_too():
    terminal = Terminal("A", "B", "C")
    for number in (1, 2, 3):
        terminal.write(number, "hello\n")
    terminal.tick(WINDOW_S)
    assert terminal.out == "hello\n(C) hello [repeated 2x across workers]\n"


def test_old_lines_of_the_first_worker_are_not_counted():
    terminal = Terminal("A", "B")
    terminal.write(1, "hello\n")
    terminal.tick(10)
    terminal.write(2, "hello\n")
    assert terminal.out == "hello\n(B) hello\n"


def test_own_repeats_blank_lines_and_the_other_stream_are_not_counted():
    terminal = shared("A", "B")
    terminal.write(1, "x\nx\n\n")
    terminal.write(2, "\n")
    terminal.write(2, "x\n", "err")
    assert terminal.out == "(A) x\n(A) x\n(A) \n(B) \n"
    assert terminal.shown["err"] == "(B) x\n"


@pytest.mark.parametrize("seed", range(5))
def test_no_line_is_lost_or_invented(seed):
    generator = random.Random(seed)
    terminal = shared("A", "B", "C")
    written = {1: [], 2: [], 3: []}
    for index in range(2_000):
        number = generator.randint(1, 3)
        line = f"line {index // 10 if generator.random() < 0.3 else (number, index)}"
        written[number].append(line)
        text = line + "\n"
        cut = generator.randint(0, len(text))
        terminal.write(number, text[:cut])
        terminal.tick(generator.choice([0, 0, 0, 0.05]))
        terminal.write(number, text[cut:])
    terminal.flush()
    count = 0
    for line in terminal.out.splitlines():
        content, _, repeated = line.partition(" [repeated ")
        assert any(content[4:] in lines for lines in written.values())
        count += int(repeated.split("x")[0]) if repeated else 1
    assert count == sum(map(len, written.values()))


# -- bars


def test_of_a_bar_in_a_file_the_end_is_shown():
    terminal = shared("A", "B")
    for percent in range(101):
        for number in (1, 2):
            terminal.write(number, f"\r{percent:3}%|{'#' * (percent // 10):10}|")
        terminal.tick(0.1)
    terminal.write(1, "\n")
    terminal.write(2, "\n")
    assert terminal.out == "(A) 100%|##########|\n(B) 100%|##########|\n"


def test_of_a_slow_bar_in_a_file_a_state_is_shown_now_and_then():
    terminal = shared(*"ABCDEFGH")
    for step in range(360):
        for number in range(1, 9):
            terminal.write(number, f"\r{number}: {step}")
        terminal.tick(10)
    lines = terminal.out.splitlines()
    assert 30 <= len(lines) <= 3600 / INTERIM_S + 8
    assert {line[:6] for line in lines} == {
        f"({label}) {index + 1}:"[:6] for index, label in enumerate("ABCDEFGH")
    }


def test_nested_bars_in_a_file_show_their_ends():
    terminal = shared("A", "B")
    terminal.write(1, "\router 0")
    for step in range(50):
        for piece in ("\n", f"\rinner {step}", "\x1b[A"):
            terminal.write(1, piece)
        terminal.tick(0.1)
    terminal.write(1, "\n\r        \r\x1b[A\router 1\n")
    terminal.tick(1)
    assert terminal.out == "(A) outer 1\n"


def test_a_shorter_bar_replaces_a_longer_one():
    terminal = shared("A", "B")
    terminal.write(1, "\r 10%|####|")
    terminal.write(1, "\r          \rnote\n")
    terminal.tick(1)
    assert terminal.out == "(A) note\n"


def test_updates_with_a_final_carriage_return_are_a_bar():
    terminal = shared("A", "B")
    terminal.write(1, "10%\r")
    terminal.write(1, "20%\r")
    terminal.write(1, "\n")
    terminal.tick(1)
    assert terminal.out == "(A) 20%\n"


def test_colours_are_kept():
    terminal = shared("A", "B")
    terminal.write(1, "\x1b[31mred\x1b[0m\n")
    assert terminal.out == "(A) \x1b[31mred\x1b[0m\n"
