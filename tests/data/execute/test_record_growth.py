"""How fast records grow, with a clock that the test sets."""

import pytest

from syncline.data.execute.execution_journal import MIN_INTERVAL_S, GrowthLimit

HOUR = 3600.0
DAY = 24 * HOUR
YEAR = 365 * DAY


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def written(seconds: float, line_bytes: int, step: float = 1.0) -> list[float]:
    """Ages at which lines of that length are written, where somebody asks every `step` seconds."""
    clock = Clock()
    growth_limit, began, ages = GrowthLimit(clock), clock.now, []
    while clock.now - began < seconds:
        clock.now += step
        if growth_limit.permits():
            growth_limit.add(line_bytes)
            ages.append(clock.now - began)
    return ages


def test_in_the_first_minutes_there_is_a_line_every_two_seconds():
    assert written(120, 1000) == [1.0 + MIN_INTERVAL_S * number for number in range(60)]


def test_intervals_become_longer_and_a_day_has_some_hundred_lines():
    ages = written(DAY, 1500, step=5.0)
    intervals = [later - earlier for earlier, later in zip(ages[:-1], ages[1:], strict=True)]
    assert 300 < len(ages) < 600
    assert intervals[-1] > 10 * 60
    assert all(
        interval < 0.1 * HOUR for age, interval in zip(ages, intervals, strict=False) if age < HOUR
    )


@pytest.mark.parametrize("line_bytes", [10, 3000, 100_000])
def test_a_year_of_lines_of_any_length_stays_below_two_megabytes(line_bytes):
    ages = written(YEAR, line_bytes, step=1000.0)
    assert 2 < len(ages) < 1000
    assert len(ages) * line_bytes < 2_000_000


def test_what_is_written_without_leave_is_made_up_for():
    clock = Clock()
    growth_limit = GrowthLimit(clock)
    growth_limit.add(200_000)
    clock.now += 60
    assert not growth_limit.permits()
    clock.now += HOUR
    assert growth_limit.permits()


def test_several_lines_need_room_for_all_of_them():
    growth_limit = GrowthLimit(clock := Clock())
    growth_limit.add(20_000)
    clock.now += 10
    assert growth_limit.permits(2)
    assert not growth_limit.permits(3)
