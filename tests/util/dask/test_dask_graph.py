"""The pure part of the Dask scheduler: what may run next, and how much at once."""

from __future__ import annotations

import operator
from typing import Any

import pytest

pytest.importorskip("dask")

from dask._task_spec import convert_legacy_graph
from dask.local import start_state_from_dask
from dask.order import order

from syncline.util.dask.graph import LEAST_IN_FLIGHT, GraphState, in_flight_limit


def inc(x: int) -> int:
    return x + 1


DIAMOND = {
    "one": 1,
    "a": (inc, "one"),
    "b": (inc, "a"),
    "c": (inc, "a"),
    "d": (operator.add, "b", "c"),
    "unneeded": (inc, "d"),
}


def state_of(
    graph: dict[Any, Any], wanted: set[Any], values: dict[Any, Any] | None = None
) -> GraphState:
    nodes = convert_legacy_graph(graph, all_keys={*graph, *(values or {})})
    return GraphState(nodes, wanted, values or {}, order(nodes).get)


def run(state: GraphState) -> list[Any]:
    """Finish one task after the other, with its key as its value; the order in which they ran."""
    ran = []
    while not state.is_done:
        key = state.start()
        state.finish(key, key)
        ran.append(key)
    return ran


def test_tasks_run_after_what_they_need_and_unneeded_ones_never() -> None:
    ran = run(state_of(DIAMOND, {"d"}))
    assert ran[0] == "a"
    assert set(ran[1:3]) == {"b", "c"}
    assert ran[3:] == ["d"]


def test_only_wanted_values_are_left_at_the_end() -> None:
    state = state_of(DIAMOND, {"d", "a"})
    run(state)
    assert set(state.values) == {"d", "a"}


def test_value_is_let_go_when_its_last_user_has_finished() -> None:
    state = state_of(DIAMOND, {"d"})
    state.finish(state.start(), "A")
    first, second = state.start(), state.start()
    state.finish(first, 1)
    assert state.values["a"] == "A"
    state.finish(second, 2)
    assert "a" not in state.values
    assert "a" in state.state["released"]


def test_state_begins_like_that_of_dasks_own_scheduler() -> None:
    graph = {key: value for key, value in DIAMOND.items() if key != "unneeded"}
    ours, theirs = (
        state_of(graph, {"d"}).state,
        start_state_from_dask(convert_legacy_graph(graph), keys=["d"]),
    )
    for name in ("waiting", "ready", "running", "finished", "cache"):
        assert ours[name] == theirs[name], name


def test_what_became_ready_last_runs_first() -> None:
    chains = {("x", i): (inc, i) for i in range(3)} | {("y", i): (inc, ("x", i)) for i in range(3)}
    ran = run(state_of(chains, {("y", i) for i in range(3)}))
    assert [name for name, _ in ran] == ["x", "y"] * 3


def test_known_value_needs_no_task() -> None:
    state = state_of({"b": (inc, "a")}, {"b"}, {"a": "known"})
    assert run(state) == ["b"]


def test_dependency_that_is_nowhere_is_named_with_who_needs_it() -> None:
    with pytest.raises(ValueError, match=r"'gone'.*'b'"):
        GraphState(
            convert_legacy_graph({"b": (inc, "gone")}, all_keys={"b", "gone"}),
            {"b"},
            {},
            lambda key: 0,
        )


def test_wanted_key_that_is_nowhere_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        state_of({"a": 1}, {"nowhere"})


def test_short_tasks_have_more_in_flight_than_long_ones() -> None:
    assert in_flight_limit(2, None) == in_flight_limit(2, 10.0) == LEAST_IN_FLIGHT
    assert in_flight_limit(2, 1e-5) > in_flight_limit(2, 1e-3) > LEAST_IN_FLIGHT
    assert in_flight_limit(1000, 10.0) == 2000
