"""TensorBoard's format, read with tensorboardX's messages and checksums."""

import pytest

from syncline.runs import event_file
from tests.event_files import events


@pytest.mark.parametrize("characters", [1, 2, 100, 5_000])
def test_records_are_those_of_tensorboardx(characters: int) -> None:
    tag = "t" * characters
    content = event_file.record(event_file.summary_event(1.5, 7, event_file.scalar(tag, 0.25)))
    (event,) = events(content)
    assert (event.wall_time, event.step) == (1.5, 7)
    assert [(value.tag, value.simple_value) for value in event.summary.value] == [(tag, 0.25)]
