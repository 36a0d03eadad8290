"""Rows of nodes and of the state API, and filters."""

import pytest

from syncline.core.node_rows import node_row
from syncline.core.state_rows import group_state, node_state, select

ROWS = [
    {"name": "a", "state": "ALIVE", "pid": 1, "detached": True},
    {"name": "b", "state": "DEAD", "pid": 2, "detached": False},
    {"name": "c", "state": "ALIVE", "pid": 3, "detached": False},
]


def names(*filters, limit=10):
    return [row["name"] for row in select(ROWS, filters, limit).rows]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (("state", "=", "alive"), ["a", "c"]),
        (("state", "!=", "ALIVE"), ["b"]),
        (("pid", "=", 2), ["b"]),
        (("pid", "=", "2"), ["b"]),
        (("pid", "=", "two"), []),
        (("detached", "=", "true"), ["a"]),
        (("detached", "=", "1"), ["a"]),
        (("detached", "!=", True), ["b", "c"]),
        (("unknown", "=", None), ["a", "b", "c"]),
    ],
)
def test_conditions(condition, found):
    assert names(condition) == found


def test_all_conditions_must_hold_and_the_limit_does_not_change_the_total():
    assert names(("state", "=", "ALIVE"), ("pid", "=", 3)) == ["c"]
    listing = select(ROWS, [("state", "=", "ALIVE")], 1)
    assert ([row["name"] for row in listing.rows], listing.total) == (["a"], 2)


def test_a_node_has_rays_keys_in_both_spellings():
    row = node_row(node_id="n", hostname="h", labels={"zone": "z"}, resources={"CPU": 2})
    assert (row["NodeID"], row["Alive"], row["alive"]) == ("n", True, True)
    assert row["Resources"] == row["resources"] == {"CPU": 2}
    assert row["NodeManagerAddress"] == row["NodeName"] == "127.0.0.1"
    state = node_state(row)
    assert (state["node_id"], state["state"], state["labels"]) == ("n", "ALIVE", {"zone": "z"})


def test_a_placement_group_names_the_node_of_each_bundle():
    row = {
        "id": 7, "name": "g", "state": "CREATED", "bundles": [{"CPU": 1}, {"CPU": 2}],
        "nodes": ["n", "m"], "stats": {},
    }  # fmt: skip
    state = group_state(row, "01")
    assert (state["placement_group_id"], state["creator_job_id"]) == (f"{7:032x}", "01")
    assert [bundle["node_id"] for bundle in state["bundles"]] == ["n", "m"]
    assert state["bundles"][1]["unit_resources"] == {"CPU": 2}
