"""Shared functions of the measured programs: interleaved rates."""

import pytest

from bench.programs import common


def test_runs_alternate_and_the_first_one_rotates(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    speeds = iter((1.0, 10.0, 20.0, 9.0, 2.0, 90.0))

    def rate(run: common.Run, count: int, repeats: int) -> float:
        run(count)
        return next(speeds)

    monkeypatch.setattr(common, "rate", rate)
    rates = common.interleaved_rates(
        [lambda count: order.append(f"a{count}"), lambda count: order.append(f"b{count}")],
        count=5,
        rounds=3,
    )
    assert order == ["a5", "b5", "b5", "a5", "a5", "b5"]
    assert rates == [2.0, 20.0]
