"""What the measured programs share: rates in turns."""

import pytest

from bench.programs import common


def test_runs_take_turns_and_each_round_begins_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    speeds = iter((1.0, 10.0, 20.0, 9.0, 2.0, 90.0))

    def rate(run: common.Run, count: int, repeats: int) -> float:
        run(count)
        return next(speeds)

    monkeypatch.setattr(common, "rate", rate)
    rates = common.rates_in_turns(
        [lambda count: order.append(f"a{count}"), lambda count: order.append(f"b{count}")],
        count=5,
        turns=3,
    )
    assert order == ["a5", "b5", "b5", "a5", "a5", "b5"]
    assert rates == [2.0, 20.0]
