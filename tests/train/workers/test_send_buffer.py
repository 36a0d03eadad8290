"""The worker's outgoing messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from syncline.train.workers.messages import (
    CheckpointsRequested,
    Finished,
    Reported,
    StepTimes,
    StreamItem,
    UsageReported,
)
from syncline.train.workers.send_buffer import SendBuffer


def report(index: int) -> Reported:
    return Reported(index=index, metrics={}, time=0.0)


def test_messages_leave_in_order_and_the_last_one_ends_the_stream() -> None:
    send_buffer = SendBuffer(max_batch=2)
    for index in range(3):
        send_buffer.put_batched(report(index))
    send_buffer.close(Finished(return_value=None))
    assert [len(batch) for batch in send_buffer.batches()] == [2, 2]
    send_buffer.put_batched(report(9))
    assert list(send_buffer.batches()) == []


def test_only_the_first_end_counts() -> None:
    send_buffer = SendBuffer()
    send_buffer.close(Finished(return_value=b"first"))
    send_buffer.close(Finished(return_value=b"second"))
    assert list(send_buffer.batches()) == [(Finished(return_value=b"first"),)]


def test_unread_batches_hold_back_further_ones_until_the_reader_answers() -> None:
    send_buffer = SendBuffer(window=1, gap_s=0.0)
    send_buffer.put_batched(report(0))
    batches = send_buffer.batches()
    assert next(batches) == (report(0),)
    for index in range(1, 100):
        send_buffer.put_batched(report(index))
    received: list[int] = []
    thread = threading.Thread(target=lambda: received.append(len(next(batches))))
    thread.start()
    send_buffer.consumed(1)
    thread.join(60)
    assert received == [99]  # gathered meanwhile, and sent as one batch


def test_a_full_outbox_makes_put_wait_and_room_lets_it_go_on() -> None:
    send_buffer = SendBuffer(max_messages=10, max_batch=10, window=1_000)
    writer = threading.Thread(
        target=lambda: [send_buffer.put_batched(report(index)) for index in range(1_000)]
    )
    writer.start()
    indices: list[int] = []
    for batch in send_buffer.batches():
        indices += [message.index for message in batch if isinstance(message, Reported)]
        assert len(send_buffer._messages) <= 10
        if len(indices) == 1_000:
            send_buffer.close()
    writer.join(60)
    assert indices == list(range(1_000))


def test_closing_frees_a_writer_that_waits() -> None:
    send_buffer = SendBuffer(max_messages=1)
    send_buffer.put_batched(report(0))
    writer = threading.Thread(target=send_buffer.put_batched, args=(report(1),))
    writer.start()
    send_buffer.close()
    writer.join(60)
    assert not writer.is_alive()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_reports_that_follow_soon_gather_until_something_that_cannot_wait() -> None:
    clock = Clock()
    send_buffer = SendBuffer(gap_s=0.05, clock=clock)
    batches = send_buffer.batches()
    send_buffer.put_batched(report(0))
    assert next(batches) == (report(0),), "the first one leaves at once"
    spent = UsageReported(times=StepTimes(), usage={})
    for message in (report(1), spent, report(2)):
        send_buffer.put_batched(message)
    send_buffer.put(CheckpointsRequested(request=0, validated=False))
    assert len(next(batches)) == 4
    send_buffer.put_batched(report(3))
    clock.now += 0.06
    assert next(batches) == (report(3),)
    assert not send_buffer._messages


def test_a_report_that_waits_leaves_when_its_time_has_come() -> None:
    send_buffer = SendBuffer(gap_s=0.02)
    batches = send_buffer.batches()
    for index in range(3):
        send_buffer.put_batched(report(index))
        assert next(batches) == (report(index),)


def test_what_is_put_never_waits() -> None:
    send_buffer = SendBuffer(gap_s=3600.0)
    batches = send_buffer.batches()
    for index in range(3):
        send_buffer.put(report(index))
        assert len(next(batches)) == 1


def test_a_sender_that_sleeps_is_told_of_every_message() -> None:
    send_buffer = SendBuffer(gap_s=0.0)
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    sender = threading.Thread(
        target=lambda: [received.put(len(batch)) for batch in _read(send_buffer)], daemon=True
    )
    sender.start()
    for index in range(1_000):
        send_buffer.put_batched(report(index))
        assert received.get(timeout=60) == 1
    send_buffer.close()
    sender.join(60)
    assert not sender.is_alive()


def _read(send_buffer: SendBuffer) -> Iterator[tuple[StreamItem, ...]]:
    for number, batch in enumerate(send_buffer.batches()):
        send_buffer.consumed(number + 1)
        yield batch


def test_nothing_follows_the_last_message_whoever_still_speaks() -> None:
    send_buffer = SendBuffer(gap_s=3600.0, max_batch=8)
    speaks = threading.Event()

    def speak() -> None:
        for index in range(20_000):
            send_buffer.put_batched(report(index))
            if index == 100:
                speaks.set()

    speaker = threading.Thread(target=speak)
    speaker.start()
    batches = _read(send_buffer)
    messages = list(next(batches))
    speaks.wait(60)
    send_buffer.close(Finished(return_value=None))
    messages += [message for batch in batches for message in batch]
    speaker.join(60)
    assert messages[-1] == Finished(return_value=None)
    indices = [message.index for message in messages[:-1] if isinstance(message, Reported)]
    assert indices == list(range(len(indices)))


def test_a_full_batch_leaves_at_once() -> None:
    send_buffer = SendBuffer(gap_s=3600.0, max_batch=4)
    batches = send_buffer.batches()
    send_buffer.put_batched(report(0))
    next(batches)
    received: list[int] = []
    thread = threading.Thread(target=lambda: received.append(len(next(batches))))
    thread.start()
    for index in range(4):
        send_buffer.put_batched(report(index))
    thread.join(60)
    assert received == [4]
