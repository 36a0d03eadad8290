"""Selectors of nodes by their labels."""

import pytest

from syncline.core.labels import alternatives, check_machine, has_labels

LABELS = {"zone": "a", "disk": "fast"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"zone": "a"}, True),
        ({"zone": "b"}, False),
        ({"zone": "!b"}, True),
        ({"zone": "in(a, b)", "disk": "fast"}, True),
        ({"zone": "in(a, b)", "disk": "slow"}, False),
        ({"zone": "!in(a, b)"}, False),
        ({"gpu": "!h100"}, True),
        ({"gpu": "h100"}, False),
    ],
    ids=str,
)
def test_conditions_of_labels(selector, expected):
    assert has_labels(LABELS, selector) is expected


def test_one_machine_needs_the_labels_of_one_selector():
    nodes = [{"Labels": LABELS}]
    selectors = alternatives({"zone": "b"}, [{"label_selector": {"disk": "fast"}}])
    check_machine(nodes, selectors, "f")
    with pytest.raises(ValueError, match=r"f needs .*'b'}, but this machine has {'zone': 'a'"):
        check_machine(nodes, selectors[:1], "f")
    with pytest.raises(ValueError, match="has no labels.*init"):
        check_machine([{"Labels": {}}], selectors, "f")
