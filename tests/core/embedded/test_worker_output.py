"""Worker output: log files, tails, the driver's streams, threads, and failing streams."""

import io
import sys
import threading

import pytest
from rich.console import Console

from syncline.core.embedded.worker_output import (
    ENDED_TAILS,
    TAIL_BYTES,
    LogFile,
    Tail,
    WorkerOutput,
)
from syncline.core.live_region import RedirectedStream


class Time:
    """A clock and a timer that tests advance."""

    def __init__(self):
        self.now = 50.0
        self.due = []

    def clock(self):
        return self.now

    def call_later(self, delay_s, action):
        self.due.append((self.now + delay_s, action))

    def advance(self, seconds):
        end = self.now + seconds
        while ready := sorted((moment for moment, _ in self.due if moment <= end)):
            self.now = max(self.now, ready[0])
            index = next(index for index, (moment, _) in enumerate(self.due) if moment == ready[0])
            self.due.pop(index)[1]()
        self.now = end


class Rig:
    def __init__(self, directory, *, to_driver=True, **streams):
        self.time = Time()
        self.stdout, self.stderr = io.StringIO(newline=""), io.StringIO(newline="")
        chosen = streams or {"stdout": self.stdout, "stderr": self.stderr}
        self.output = WorkerOutput(
            directory,
            to_driver=to_driver,
            call_later=self.time.call_later,
            clock=self.time.clock,
            **chosen,
        )


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def test_bytes_go_to_the_file_of_worker_and_stream(rig, tmp_path):
    rig.output.feed(1, "out", b"one\xff\n")
    rig.output.feed(1, "err", b"two\n")
    rig.output.feed(2, "out", b"three")
    rig.output.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "worker-1.out": b"one\xff\n",
        "worker-1.err": b"two\n",
        "worker-2.out": b"three",
    }


def test_streams_go_to_the_driver_each_to_its_own(rig):
    rig.output.feed(1, "out", b"one\n")
    rig.output.feed(1, "err", b"two\n")
    assert (rig.stdout.getvalue(), rig.stderr.getvalue()) == ("one\n", "two\n")


def test_labels_appear_with_the_second_worker(rig):
    rig.output.name(1, "Counter pid=123")
    rig.output.name(2, "rank 1")
    rig.output.feed(1, "out", b"a\n")
    rig.output.feed(2, "out", b"b\n")
    rig.output.feed(1, "out", b"c\n")
    assert rig.stdout.getvalue() == "a\n(rank 1) b\n(Counter pid=123) c\n"


def test_split_characters_are_reassembled(rig):
    data = "zwölf Boxkämpfer 🥊\n".encode()
    for index in range(len(data)):
        rig.output.feed(1, "out", data[index : index + 1])
    assert rig.stdout.getvalue() == "zwölf Boxkämpfer 🥊\n"


def test_bytes_that_are_no_text_are_replaced(rig):
    rig.output.feed(1, "out", b"a\xffb\n")
    rig.output.feed(1, "out", b"half \xc3")
    rig.output.end(1)
    rig.time.advance(1)
    assert rig.stdout.getvalue() == "a\ufffdb\nhalf \ufffd"


def test_the_timer_shows_a_prompt(rig):
    rig.output.feed(1, "out", b"name? ")
    assert rig.stdout.getvalue() == ""
    rig.time.advance(1)
    assert rig.stdout.getvalue() == "name? "
    assert rig.time.due == []


def test_the_timer_shows_repeats(rig):
    for number in range(1, 5):
        rig.output.feed(number, "out", b"loading\n")
    assert rig.stdout.getvalue() == "loading\n"
    rig.time.advance(1)
    assert rig.stdout.getvalue() == "loading\n(worker 4) loading [repeated 3x across workers]\n"
    assert rig.output.statistics.repeated_lines == 3


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("term", "is_block"), [("xterm", True), ("dumb", False)])
def test_bars_form_a_block_on_a_terminal(tmp_path, monkeypatch, term, is_block):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "30")
    rig = Rig(tmp_path, stdout=Terminal(), stderr=(stream := Terminal(newline="")))
    for number in (1, 2):
        rig.output.feed(number, "err", b"\r" + b"%d" % number * 100)
    rig.time.advance(1)
    rows = [f"(worker {number}) " + str(number) * 18 for number in (1, 2)]
    assert all((row + "\x1b" in stream.getvalue()) == is_block for row in rows)
    rig.output.close()


def test_a_redirected_stream_shows_the_block_above_its_region(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    redirected = RedirectedStream(Terminal(), Console(), threading.RLock())
    rig = Rig(tmp_path, stdout=io.StringIO(), stderr=redirected)
    for number in (1, 2):
        rig.output.feed(number, "err", b"\r 10%")
    rig.time.advance(1)
    assert redirected.unfinished == ("(worker 1)  10%", "(worker 2)  10%")


def test_timers_do_not_pile_up(rig):
    for step in range(200):
        for number in (1, 2, 3):
            rig.output.feed(number, "out", b"\r%d" % step)
            rig.output.feed(number, "err", b"same\npart")
        rig.time.advance(0.02)
    assert len(rig.time.due) <= 20


def test_nothing_is_printed_without_log_to_driver(tmp_path):
    rig = Rig(tmp_path, to_driver=False)
    rig.output.name(1, "A")
    rig.output.feed(1, "out", b"x\ny")
    rig.output.flush()
    rig.output.end(1)
    assert (rig.stdout.getvalue(), rig.time.due) == ("", [])
    assert rig.output.tail(1) == "x\ny"
    assert (tmp_path / "worker-1.out").read_bytes() == b"x\ny"


def test_streams_are_looked_up_at_each_write(tmp_path, monkeypatch):
    time = Time()
    output = WorkerOutput(tmp_path, to_driver=True, call_later=time.call_later, clock=time.clock)
    for text in ("one\n", "two\n"):
        replacement = io.StringIO()
        monkeypatch.setattr(sys, "stdout", replacement)
        output.feed(1, "out", text.encode())
        assert replacement.getvalue() == text


def test_tails_outlive_their_workers(rig):
    rig.output.feed(1, "out", b"".join(b"line %d\n" % index for index in range(100)))
    rig.output.feed(1, "err", b"Segmentation fault")
    assert rig.output.tail(1, lines=3) == "line 98\nline 99\nSegmentation fault"
    rig.output.end(1)
    assert rig.output.tail(1, lines=1) == "Segmentation fault"
    assert rig.output.tail(1).count("\n") == 19
    assert rig.output.tail(99) == ""


def test_tails_of_ended_workers_are_bounded(rig):
    for number in range(ENDED_TAILS + 10):
        rig.output.feed(number, "out", b"x\n")
        rig.output.end(number)
    assert rig.output.tail(9) == ""
    assert rig.output.tail(10) == "x"
    assert rig.output.statistics.workers == 0


def test_the_end_of_a_worker_does_not_write_on_the_callers_thread(rig):
    rig.output.feed(1, "out", b"unfinished")
    rig.output.end(1)
    assert rig.stdout.getvalue() == ""
    rig.time.advance(0)
    assert rig.stdout.getvalue() == "unfinished"


def test_close_shows_held_text_and_drops_later_bytes(rig):
    rig.output.feed(1, "out", b"held")
    rig.output.close()
    assert rig.stdout.getvalue() == "held"
    rig.output.feed(1, "out", b"late\n")
    rig.output.close()
    rig.time.advance(10)
    assert rig.stdout.getvalue() == "held"
    assert rig.output.tail(1) == "held"


class Broken(io.StringIO):
    def write(self, text):
        raise BrokenPipeError("nobody reads")


def closed_stream():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Broken(), closed_stream()], ids=["broken", "closed"])
def test_a_failing_stream_loses_its_text_only(tmp_path, stream):
    rig = Rig(tmp_path, stdout=stream, stderr=io.StringIO())
    rig.output.feed(1, "out", b"x\n")
    rig.output.feed(1, "out", b"y\n")
    rig.output.close()
    assert rig.output.statistics.lost_texts == 2
    assert rig.output.tail(1) == "x\ny"


def test_no_stream_at_all_is_fine(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    rig = Rig(tmp_path, stdout=None, stderr=None)
    rig.output.feed(1, "out", b"x\n")
    assert rig.output.statistics.lost_texts == 1


def test_unencodable_characters_are_escaped(tmp_path):
    raw = io.BytesIO()
    rig = Rig(
        tmp_path, stdout=io.TextIOWrapper(raw, encoding="ascii", newline=""), stderr=io.StringIO()
    )
    rig.output.feed(1, "out", "ö\n".encode())
    assert raw.getvalue() == b"\\xf6\n"


def test_a_removed_directory_loses_the_log_only(tmp_path):
    rig = Rig(tmp_path / "missing")
    rig.output.feed(1, "out", b"x\n")
    assert rig.stdout.getvalue() == "x\n"
    assert rig.output.statistics.lost_log_bytes == 2


class Reentrant(io.StringIO):
    """A program's replacement of sys.stdout, which uses the engine, which reads a pipe."""

    output = None
    rounds = 2

    def write(self, text):
        if self.rounds:
            self.rounds -= 1
            self.output.feed(1, "out", b"inner\n")
            self.output.tail(1)
        return super().write(text)


@pytest.mark.timeout(60)
def test_a_reentrant_stream_finds_no_lock(tmp_path):
    stream = Reentrant()
    rig = Rig(tmp_path, stdout=stream, stderr=io.StringIO())
    stream.output = rig.output
    rig.output.feed(1, "out", b"outer\n")
    assert stream.getvalue().splitlines() == ["outer", "inner", "inner"]


@pytest.mark.timeout(120)
def test_tails_and_flushes_from_other_threads_lose_nothing(rig):
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            rig.output.tail(1)
            rig.output.flush()

    threads = [threading.Thread(target=disturb, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for index in range(2_000):
        rig.output.feed(1, "out", b"line %d\n" % index)
    stop.set()
    for thread in threads:
        thread.join()
    assert rig.stdout.getvalue() == "".join(f"line {index}\n" for index in range(2_000))


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_made_by_the_first_write(tmp_path):
    file = LogFile(tmp_path / "worker-1.out")
    assert names(tmp_path) == []
    assert file.write(b"\xff raw\n")
    file.close()
    assert (tmp_path / "worker-1.out").read_bytes() == b"\xff raw\n"


def test_a_full_file_is_rotated_and_the_oldest_removed(tmp_path):
    path = tmp_path / "log"
    file = LogFile(path, limit_bytes=10, files=3)
    for index in range(8):
        assert file.write(b"line %d\n" % index)
    file.close()
    assert names(tmp_path) == ["log", "log.1", "log.2"]
    assert [(tmp_path / name).read_bytes() for name in names(tmp_path)] == [
        b"line 7\n",
        b"line 6\n",
        b"line 5\n",
    ]


def test_a_single_file_starts_over(tmp_path):
    file = LogFile(tmp_path / "log", limit_bytes=10, files=1)
    file.write(b"12345678")
    file.write(b"abcdefgh")
    file.close()
    assert names(tmp_path) == ["log"]
    assert (tmp_path / "log").read_bytes() == b"abcdefgh"


def test_a_closed_file_is_opened_again_by_a_write(tmp_path):
    file = LogFile(tmp_path / "log")
    file.write(b"a")
    file.close()
    file.write(b"b")
    file.close()
    assert (tmp_path / "log").read_bytes() == b"ab"


def test_a_missing_directory_loses_the_log_only(tmp_path):
    file = LogFile(tmp_path / "missing" / "log")
    assert not file.write(b"x")
    (tmp_path / "missing").mkdir()
    assert file.write(b"y")
    file.close()


def test_a_tail_has_the_last_lines_of_both_streams_in_order():
    tail = Tail()
    tail.add("out", b"one\ntwo\n")
    tail.add("err", b"three\n")
    tail.add("out", b"fo")
    tail.add("err", b"Error")
    tail.add("out", b"ur\n")
    assert tail.text(10) == "one\ntwo\nthree\nfour\nError"
    assert tail.text(2) == "four\nError"
    assert tail.text(0) == ""


def test_a_tail_shows_a_bar_once_and_replaces_what_is_no_text():
    tail = Tail()
    tail.add("err", b"\r10%\r20%\r30%")
    tail.add("out", b"\xff\n")
    assert tail.text(5) == "\ufffd\n30%"


def test_a_tail_is_bounded_and_begins_with_a_whole_line():
    tail = Tail()
    for index in range(50_000):
        tail.add("out" if index % 2 else "err", b"line number %06d\n" % index)
    lines = tail.text(1_000_000).split("\n")
    assert lines[-1] == "line number 049999"
    assert all(len(line) == len(lines[-1]) for line in lines)
    assert TAIL_BYTES // 2 < sum(map(len, lines)) <= 2 * TAIL_BYTES


def test_a_tail_of_one_endless_line_is_bounded():
    tail = Tail()
    for _ in range(100):
        tail.add("out", b"x" * 5_000)
    tail.add("out", b"\nend\n")
    assert tail.text(1) == "end"
    assert len(tail.text(100)) <= 2 * TAIL_BYTES
