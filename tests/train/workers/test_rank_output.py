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


def test_a_log_ends_at_its_limit_and_the_stream_goes_on(tmp_path: Path) -> None:
    stream = io.StringIO()
    tee = Tee(stream, RankLog(str(tmp_path / "log"), limit_bytes=3))
    tee.write("abcdef")
    tee.write("ghi")
    assert stream.getvalue() == "abcdefghi"
    assert (tmp_path / "log").read_text() == "abc\n(the log is full)\n"
