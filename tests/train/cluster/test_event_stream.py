"""What a run tells reaches every reader once, also those that come late."""

from __future__ import annotations

import threading

from syncline.train.console.snapshot import Phase, Snapshot
from syncline.train.controller.event_stream import (
    Ended,
    EventStream,
    Evicted,
    Line,
    SnapshotTaken,
    StreamEvent,
)


def texts(told: list[tuple[StreamEvent, ...]]) -> list[str]:
    return [item.text for batch in told for item in batch if isinstance(item, Line)]


def test_a_reader_gets_what_it_missed_then_what_comes_then_the_end() -> None:
    stream = EventStream()
    stream.print_event("first")
    reading = stream.read("a", 0)
    assert next(reading) == (Line(number=1, text="first"),)
    stream.print_event("second")
    stream.end(Ended(aborted=True))
    assert list(reading) == [(Line(number=2, text="second"), Ended(aborted=True))]


def test_a_reader_that_lost_its_stream_goes_on_after_the_line_it_has() -> None:
    stream = EventStream()
    for text in ("one", "two", "three"):
        stream.print_event(text)
    stream.end(Ended())
    assert texts(list(stream.read("a", 2))) == ["three"]


def test_only_the_last_lines_are_kept() -> None:
    stream = EventStream(kept_lines=2)
    for number in range(5):
        stream.print_event(str(number))
    stream.end(Ended())
    assert texts(list(stream.read("late", 0))) == ["3", "4"]


def test_a_waiting_reader_is_woken() -> None:
    stream, told = EventStream(), []
    thread = threading.Thread(target=lambda: told.extend(stream.read("a", 0)))
    thread.start()
    stream.print_event("now")
    stream.end(Ended())
    thread.join(60)
    assert texts(told) == ["now"]


def test_one_reader_too_many_sends_the_oldest_away() -> None:
    stream = EventStream(max_readers=1)
    stream.print_event("line")
    oldest = stream.read("oldest", 0)
    next(oldest)
    next(stream.read("newest", 0))
    assert list(oldest) == [(Evicted(),)]


def test_the_end_is_fetched_when_somebody_has_it_and_everybody_when_all_have() -> None:
    stream = EventStream()
    stream.print_event("line")
    for reader in ("a", "b"):
        next(stream.read(reader, 0))
    stream.end(Ended())
    assert not stream.fetched
    stream.confirm("a")
    assert stream.fetched
    stream.confirm("b")
    stream.wait_until_fetched(60, 60)
    assert stream.wait_until_ended(0)


def at(seconds: float) -> Snapshot:
    return Snapshot(name="vit", path="/runs/vit", phase=Phase.TRAINING, running_s=seconds)


def test_of_pictures_only_the_newest_is_told_and_only_to_readers_that_draw() -> None:
    stream = EventStream()
    stream.print_event("line")
    for second in range(3):
        stream.show(at(second))
    drawing = stream.read("drawing", 0, snapshots=True)
    assert next(drawing) == (Line(number=1, text="line"), SnapshotTaken(snapshot=at(2)))
    stream.show(at(3))
    assert next(drawing) == (SnapshotTaken(snapshot=at(3)),)
    stream.end(Ended())
    assert list(drawing) == [(Ended(),)]
    assert list(stream.read("other", 0)) == [(Line(number=1, text="line"), Ended())]


def test_last_picture_comes_before_the_end() -> None:
    stream = EventStream()
    stream.show(at(1))
    stream.end(Ended())
    assert list(stream.read("late", 0, snapshots=True)) == [
        (SnapshotTaken(snapshot=at(1)), Ended())
    ]


def test_what_is_said_is_told_and_lines_that_pictures_say_too_are_marked() -> None:
    stream = EventStream()
    stream.print_event("a restart")
    stream.print_status("the beginning")
    stream.show(at(1))
    stream.end(Ended())
    assert list(stream.read("a", 0, snapshots=True)) == [
        (
            Line(number=1, text="a restart"),
            Line(number=2, text="the beginning", is_status=True),
            SnapshotTaken(snapshot=at(1)),
            Ended(),
        )
    ]
