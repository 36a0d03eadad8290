"""The worker's outgoing messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from syncline.train.step_times import StepTimes
from syncline.train.workers.messages import CheckpointsAsked, Finished, Reported, Sent, Spent
from syncline.train.workers.outbox import Outbox


def report(index: int) -> Reported:
    return Reported(index=index, metrics={}, time=0.0)


def test_messages_leave_in_order_and_the_last_one_ends_the_stream() -> None:
    outbox = Outbox(max_batch=2)
    for index in range(3):
        outbox.gather(report(index))
    outbox.close(Finished(return_value=None))
    assert [len(batch) for batch in outbox.batches()] == [2, 2]
    outbox.gather(report(9))
    assert list(outbox.batches()) == []


def test_only_the_first_end_counts() -> None:
    outbox = Outbox()
    outbox.close(Finished(return_value=b"first"))
    outbox.close(Finished(return_value=b"second"))
    assert list(outbox.batches()) == [(Finished(return_value=b"first"),)]


def test_unread_batches_hold_back_further_ones_until_the_reader_answers() -> None:
    outbox = Outbox(window=1, gap_s=0.0)
    outbox.gather(report(0))
    batches = outbox.batches()
    assert next(batches) == (report(0),)
    for index in range(1, 100):
        outbox.gather(report(index))
    received: list[int] = []
    thread = threading.Thread(target=lambda: received.append(len(next(batches))))
    thread.start()
    outbox.consumed(1)
    thread.join(60)
    assert received == [99]  # gathered meanwhile, and sent as one batch


def test_a_full_outbox_makes_put_wait_and_room_lets_it_go_on() -> None:
    outbox = Outbox(max_messages=10, max_batch=10, window=1_000)
    writer = threading.Thread(
        target=lambda: [outbox.gather(report(index)) for index in range(1_000)]
    )
    writer.start()
    indices: list[int] = []
    for batch in outbox.batches():
        indices += [message.index for message in batch if isinstance(message, Reported)]
        assert outbox.statistics().waiting <= 10
        if len(indices) == 1_000:
            outbox.close()
    writer.join(60)
    assert indices == list(range(1_000))


def test_closing_frees_a_writer_that_waits() -> None:
    outbox = Outbox(max_messages=1)
    outbox.gather(report(0))
    writer = threading.Thread(target=outbox.gather, args=(report(1),))
    writer.start()
    outbox.close()
    writer.join(60)
    assert not writer.is_alive()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_reports_that_follow_soon_gather_until_something_that_cannot_wait() -> None:
    clock = Clock()
    outbox = Outbox(gap_s=0.05, clock=clock)
    batches = outbox.batches()
    outbox.gather(report(0))
    assert next(batches) == (report(0),), "the first one leaves at once"
    spent = Spent(times=StepTimes(), usage={})
    for message in (report(1), spent, report(2)):
        outbox.gather(message)
    outbox.put(CheckpointsAsked(request=0, validated=False))
    assert len(next(batches)) == 4
    outbox.gather(report(3))
    clock.now += 0.06
    assert next(batches) == (report(3),)
    assert outbox.statistics().waiting == 0


def test_a_report_that_waits_leaves_when_its_time_has_come() -> None:
    outbox = Outbox(gap_s=0.02)
    batches = outbox.batches()
    for index in range(3):
        outbox.gather(report(index))
        assert next(batches) == (report(index),)


def test_what_is_put_never_waits() -> None:
    outbox = Outbox(gap_s=3600.0)
    batches = outbox.batches()
    for index in range(3):
        outbox.put(report(index))
        assert len(next(batches)) == 1


def test_a_sender_that_sleeps_is_told_of_every_message() -> None:
    outbox = Outbox(gap_s=0.0)
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    sender = threading.Thread(
        target=lambda: [received.put(len(batch)) for batch in _read(outbox)], daemon=True
    )
    sender.start()
    for index in range(1_000):
        outbox.gather(report(index))
        assert received.get(timeout=60) == 1
    outbox.close()
    sender.join(60)
    assert not sender.is_alive()


def _read(outbox: Outbox) -> Iterator[tuple[Sent, ...]]:
    for number, batch in enumerate(outbox.batches()):
        outbox.consumed(number + 1)
        yield batch


def test_nothing_follows_the_last_message_whoever_still_speaks() -> None:
    outbox = Outbox(gap_s=3600.0, max_batch=8)
    speaks = threading.Event()

    def speak() -> None:
        for index in range(20_000):
            outbox.gather(report(index))
            if index == 100:
                speaks.set()

    speaker = threading.Thread(target=speak)
    speaker.start()
    batches = _read(outbox)
    messages = list(next(batches))
    speaks.wait(60)
    outbox.close(Finished(return_value=None))
    messages += [message for batch in batches for message in batch]
    speaker.join(60)
    assert messages[-1] == Finished(return_value=None)
    indices = [message.index for message in messages[:-1] if isinstance(message, Reported)]
    assert indices == list(range(len(indices)))


def test_a_full_batch_leaves_at_once() -> None:
    outbox = Outbox(gap_s=3600.0, max_batch=4)
    batches = outbox.batches()
    outbox.gather(report(0))
    next(batches)
    received: list[int] = []
    thread = threading.Thread(target=lambda: received.append(len(next(batches))))
    thread.start()
    for index in range(4):
        outbox.gather(report(index))
    thread.join(60)
    assert received == [4]
