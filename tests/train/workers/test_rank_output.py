"""The log of a rank."""

from __future__ import annotations

import io
from pathlib import Path

from syncline.train.workers.output import RankLog, Tee


def test_what_is_printed_goes_to_the_stream_and_to_the_log(tmp_path: Path) -> None:
    stream = io.StringIO()
    tee = Tee(stream, RankLog(str(tmp_path / "log")))
    print("hello", file=tee)  # type: ignore[arg-type]
    assert stream.getvalue() == "hello\n"
    assert (tmp_path / "log").read_text() == "hello\n"
    assert tee.isatty() is False


def test_a_log_that_has_become_long_begins_anew_and_keeps_the_part_before(tmp_path: Path) -> None:
    log = RankLog(str(tmp_path / "rank-0.log"), part_bytes=10)
    for number in range(5):
        log.write(f"line {number}\n")
    log.close()
    log.write("too late")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.1.log", "rank-0.log"]
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
    tee.write(" and this")
    assert stream.getvalue() == "shown and this"
