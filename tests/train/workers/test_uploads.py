"""The upload thread: order, draining, failures, and how far behind it may be."""

from __future__ import annotations

import logging
import threading

import pytest

from syncline.testing.waiting import eventually
from syncline.train.workers.uploads import MAX_WAITING, Uploader


def never(error: BaseException) -> None:
    raise AssertionError("no upload fails here") from error


def test_uploads_come_in_order_and_all_before_the_end() -> None:
    uploaded: list[int] = []
    uploader = Uploader(uploaded.append, never)
    for number in range(50):
        uploader.submit(number)
    uploader.finish()
    assert uploaded == list(range(50))


def test_an_uploader_without_uploads_has_nothing_to_finish() -> None:
    Uploader(never, never).finish()


def test_a_submission_waits_while_too_many_wait_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    may_go = threading.Semaphore(0)
    uploader: Uploader[int] = Uploader(lambda number: may_go.acquire() and None, never)
    submitted: list[int] = []

    def report() -> None:
        for number in range(MAX_WAITING + 3):
            uploader.submit(number)
            submitted.append(number)

    with caplog.at_level(logging.WARNING, logger="syncline"):
        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        # One runs, `MAX_WAITING` are queued, and the next one waits.
        eventually(lambda: len(caplog.records) == 1 and len(submitted) == MAX_WAITING + 1)
        for _ in range(MAX_WAITING + 3):
            may_go.release()
        thread.join(60)
    assert not thread.is_alive()
    assert len(caplog.records) == 1
    assert "slower than reports" in caplog.text


def test_after_a_failure_the_rest_is_dropped_and_nobody_waits() -> None:
    failures: list[BaseException] = []
    uploaded: list[int] = []

    def upload(number: int) -> None:
        if number == 1:
            raise OSError("refused")
        uploaded.append(number)

    uploader = Uploader(upload, failures.append)
    for number in range(MAX_WAITING * 3):
        uploader.submit(number)
    uploader.finish()
    assert uploaded == [0]
    assert [str(error) for error in failures] == ["refused"]
