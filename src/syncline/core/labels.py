"""Labels of nodes, and selectors of nodes by their labels. Pure.

A selector has a condition by label: `x`, `!x`, `in(x, y)` or `!in(x, y)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Selector = Mapping[str, str]
Nodes = Iterable[Mapping[str, Any]]
"""Rows with Ray's fields, as `Engine.nodes` returns them."""

_CONDITION = re.compile(r"(?P<no>!?)(?:in\((?P<several>.*)\)|(?P<one>.*))")


def has_labels(labels: Mapping[str, str], selector: Selector) -> bool:
    """Return True if labels meet all conditions."""
    return all(_meets(labels.get(label), condition) for label, condition in selector.items())


def alternatives(selector: Selector, fallbacks: Sequence[Mapping[str, Selector]]) -> list[Selector]:
    """Return the selectors of which a node must meet one: `label_selector` and its fallbacks."""
    return [selector, *(each.get("label_selector") or {} for each in fallbacks)]


def selectors_text(selectors: Sequence[Selector]) -> str:
    """Return selectors as text for errors."""
    return " or ".join(str(dict(selector)) for selector in selectors)


def check_machine(nodes: Nodes, selectors: Sequence[Selector], what: str) -> None:
    """Raise ValueError if the node of an engine of one machine meets none of the selectors.

    `what` names the demand in the message.
    """
    (node,) = nodes
    labels = node["Labels"]
    if any(has_labels(labels, selector) for selector in selectors):
        return
    raise ValueError(
        f"{what} needs a node with the labels {selectors_text(selectors)}, but this machine has "
        f"{dict(labels) or 'no labels'}: it could never start. Change the selector, or give the "
        f"machine these labels with `init(labels={{...}})`."
    )


def _meets(value: str | None, condition: str) -> bool:
    found = _CONDITION.fullmatch(condition)
    assert found is not None, "any text matches"
    wanted = found["several"].split(",") if found["several"] is not None else [found["one"]]
    is_one = value in [each.strip() for each in wanted]
    return is_one != bool(found["no"])
