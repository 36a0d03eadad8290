"""What a run tells reaches every reader once, also those that come late."""

from __future__ import annotations

import threading

from syncline.train.controller.story import Ended, Line, SentAway, Story, Told


def texts(told: list[tuple[Told, ...]]) -> list[str]:
    return [item.text for batch in told for item in batch if isinstance(item, Line)]


def test_a_reader_gets_what_it_missed_then_what_comes_then_the_end() -> None:
    story = Story()
    story.tell("first")
    reading = story.read("a", 0)
    assert next(reading) == (Line(number=1, text="first"),)
    story.tell("second")
    story.end(Ended(aborted=True))
    assert list(reading) == [(Line(number=2, text="second"), Ended(aborted=True))]


def test_a_reader_that_lost_its_stream_goes_on_after_the_line_it_has() -> None:
    story = Story()
    for text in ("one", "two", "three"):
        story.tell(text)
    story.end(Ended())
    assert texts(list(story.read("a", 2))) == ["three"]


def test_only_the_last_lines_are_kept() -> None:
    story = Story(kept_lines=2)
    for number in range(5):
        story.tell(str(number))
    story.end(Ended())
    assert texts(list(story.read("late", 0))) == ["3", "4"]


def test_a_waiting_reader_is_woken() -> None:
    story, told = Story(), []
    thread = threading.Thread(target=lambda: told.extend(story.read("a", 0)))
    thread.start()
    story.tell("now")
    story.end(Ended())
    thread.join(60)
    assert texts(told) == ["now"]


def test_one_reader_too_many_sends_the_oldest_away() -> None:
    story = Story(max_readers=1)
    story.tell("line")
    oldest = story.read("oldest", 0)
    next(oldest)
    next(story.read("newest", 0))
    assert list(oldest) == [(SentAway(),)]


def test_the_end_is_fetched_when_somebody_has_it_and_everybody_when_all_have() -> None:
    story = Story()
    story.tell("line")
    for reader in ("a", "b"):
        next(story.read(reader, 0))
    story.end(Ended())
    assert not story.fetched
    story.confirm("a")
    assert story.fetched
    story.confirm("b")
    story.wait_until_fetched(60, 60)
    assert story.wait_until_ended(0)
