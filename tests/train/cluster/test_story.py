"""What a run tells reaches every reader once, also those that come late."""

from __future__ import annotations

import threading

from syncline.train.console.snapshot import Phase, Snapshot
from syncline.train.controller.story import (
    Ended,
    Line,
    Picture,
    SentAway,
    Story,
    StoryDisplay,
    Told,
)


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


def at(seconds: float) -> Snapshot:
    return Snapshot(name="vit", path="/runs/vit", phase=Phase.TRAINING, running_s=seconds)


def test_of_pictures_only_the_newest_is_told_and_only_to_readers_that_draw() -> None:
    story = Story()
    story.tell("line")
    for second in range(3):
        story.picture(at(second))
    drawing = story.read("drawing", 0, pictures=True)
    assert next(drawing) == (Line(number=1, text="line"), Picture(snapshot=at(2)))
    story.picture(at(3))
    assert next(drawing) == (Picture(snapshot=at(3)),)
    story.end(Ended())
    assert list(drawing) == [(Ended(),)]
    assert list(story.read("other", 0)) == [(Line(number=1, text="line"), Ended())]


def test_last_picture_comes_before_the_end() -> None:
    story = Story()
    story.picture(at(1))
    story.end(Ended())
    assert list(story.read("late", 0, pictures=True)) == [(Picture(snapshot=at(1)), Ended())]


def test_what_is_said_is_told_and_lines_that_pictures_say_too_are_marked() -> None:
    story = Story()
    display = StoryDisplay(story)
    display.say("a restart")
    display.outline("the beginning")
    display.show(at(1))
    story.end(Ended())
    assert list(story.read("a", 0, pictures=True)) == [
        (
            Line(number=1, text="a restart"),
            Line(number=2, text="the beginning", is_outline=True),
            Picture(snapshot=at(1)),
            Ended(),
        )
    ]
