"""Tests of the counterparts of calls that only Linux has."""

from __future__ import annotations

import os
import select

import pytest

from syncline import system


def test_poll_reports_what_epoll_would() -> None:
    wakes = []
    poll = system.Poll(lambda: wakes.append(1))
    reading, writing = system.nonblocking_pipe()
    poll.register(reading, select.POLLIN)
    assert poll.poll(0.0) == []
    os.write(writing, b"x")
    assert poll.poll(-1) == [(reading, select.POLLIN)]
    poll.register(writing, 0)
    poll.modify(writing, select.POLLOUT)
    assert dict(poll.poll(1.0)) == {reading: select.POLLIN, writing: select.POLLOUT}
    poll.unregister(reading)
    with pytest.raises(OSError, match="is not watched"):
        poll.unregister(reading)
    assert len(wakes) == 3
    for end in (reading, writing):
        os.close(end)


def test_pipe_does_not_block_and_is_not_inherited() -> None:
    reading, writing = system.nonblocking_pipe()
    assert not os.get_inheritable(reading)
    assert not os.get_inheritable(writing)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("is_linux", [True, False])
def test_anonymous_file_has_no_name(is_linux: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "IS_LINUX", is_linux)
    descriptor = system.anonymous_file("values")
    try:
        os.write(descriptor, b"abc")
        assert os.pread(descriptor, 10, 0) == b"abc"
        assert os.fstat(descriptor).st_nlink == 0
    finally:
        os.close(descriptor)
