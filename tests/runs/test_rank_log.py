"""The log of a rank."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline.runs.rank_log import RankLog, Tee


def test_what_is_printed_goes_to_the_stream_and_to_the_log(tmp_path: Path) -> None:
    stream = io.StringIO()
    tee = Tee(stream, RankLog(str(tmp_path / "log")))
    print("hello", file=tee)
    assert stream.getvalue() == "hello\n"
    assert (tmp_path / "log").read_text() == "hello\n"
    assert tee.isatty() is False


def test_a_log_that_has_become_long_begins_anew_and_keeps_the_part_before(tmp_path: Path) -> None:
    log = RankLog(str(tmp_path / "rank-0.log"), part_bytes=10)
    for number in range(5):
        log.write(f"line {number}\n")
    log.close()
    log.write("too late")
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["rank-0.1.log", "rank-0.log"]
    assert (tmp_path / "rank-0.1.log").read_text() == "line 3\n"
    assert (tmp_path / "rank-0.log").read_text() == "line 4\n"


def test_a_log_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    for text in ("first\n", "second\n", "third\n"):
        log = RankLog(str(tmp_path / "rank-0.log"), part_bytes=14)
        log.write(text)
        log.close()
    assert (tmp_path / "rank-0.1.log").read_text() == "first\nsecond\n"
    assert (tmp_path / "rank-0.log").read_text() == "third\n"


def test_a_full_disk_costs_lines_and_not_the_work(tmp_path: Path) -> None:
    stream, log = io.StringIO(), RankLog("/dev/full")
    tee = Tee(stream, log)
    tee.write("shown")
    tee.write(" and this\n")
    assert stream.getvalue() == "shown and this\n"


def in_child(work: Callable[[], None]) -> int:
    """What a forked process ends with that has done something: 0, or 1 where that raised, or hung
    for a while.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    os._exit(int(thread.is_alive()))


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_prints_can_print_too(tmp_path: Path) -> None:
    log = RankLog(str(tmp_path / "rank-0.log"))
    with log._lock:  # as that thread holds it at this moment
        assert in_child(lambda: log.write("from the child\n")) == 0
    log.write("from the worker\n")
    assert (tmp_path / "rank-0.log").read_text() == "from the child\nfrom the worker\n"


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_begin_no_new_part_and_do_not_fill_the_disk(tmp_path: Path) -> None:
    log = RankLog(str(tmp_path / "rank-0.log"), part_bytes=100)
    log.write("worker\n")
    assert in_child(lambda: [log.write(f"child {number}\n") for number in range(100)] and None) == 0
    assert [path.name for path in tmp_path.glob("*.log")] == ["rank-0.log"]
    assert 100 < (tmp_path / "rank-0.log").stat().st_size <= 200
    log.write("worker again\n")
    assert (tmp_path / "rank-0.1.log").read_text().startswith("worker\nchild 0\n")
    assert in_child(lambda: log.write("child again\n")) == 0
    assert (tmp_path / "rank-0.log").read_text() == "worker again\nchild again\n"


def test_lines_that_are_written_together_are_kept_too(tmp_path: Path) -> None:
    stream = io.StringIO()
    Tee(stream, RankLog(str(tmp_path / "log"))).writelines(["a\n", "b\n"])
    assert stream.getvalue() == (tmp_path / "log").read_text() == "a\nb\n"


def test_an_unfinished_line_waits_for_its_end_or_a_flush(tmp_path: Path) -> None:
    log = RankLog(str(tmp_path / "log"))
    out, errors = Tee(io.StringIO(), log, "stdout"), Tee(io.StringIO(), log, "stderr")
    print("loss", end=" ", file=out)
    assert not (tmp_path / "log").exists()
    print("a warning", file=errors)
    print("0.5", file=out)
    assert (tmp_path / "log").read_text() == "a warning\nloss 0.5\n"
    print("bar", end="", file=out, flush=True)
    assert (tmp_path / "log").read_text().endswith("\nbar")
    print(" end", end="", file=out)
    log.close()
    assert (tmp_path / "log").read_text().endswith("\nbar end")
