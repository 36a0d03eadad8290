"""What may be asked of a profile."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.train.workers.profiling.profile_request import ProfileKind, ProfileRequest


def test_defaults_are_filled_in() -> None:
    assert ProfileRequest.of({"kind": "cpu"}) == ProfileRequest(
        kind=ProfileKind.CPU, seconds=10.0, steps=10
    )
    assert ProfileRequest.of({"kind": "torch", "seconds": None, "steps": None}).seconds == 120.0
    given = ProfileRequest.of({"kind": "torch", "seconds": 2.5, "steps": 3})
    assert (given.seconds, given.steps) == (2.5, 3)


@pytest.mark.parametrize(
    ("kind", "ending"), [("cpu", "cpu.svg"), ("memory", "memory.html"), ("torch", "torch.json.gz")]
)
def test_files_end_with_what_they_are(kind: str, ending: str) -> None:
    assert ProfileRequest.of({"kind": kind}).ending == ending


def test_everything_has_a_limit() -> None:
    request = ProfileRequest.of({"kind": "memory", "seconds": 600})
    assert request.answer_within_s == 600 + request.afterwards_s < 900


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "kind=None"),
        ({"kind": "gpu"}, "'cpu', 'memory', 'torch'"),
        ({"kind": "cpu", "seconds": 0}, "seconds=0 is invalid"),
        ({"kind": "cpu", "seconds": 601}, "from 1 to 600"),
        ({"kind": "cpu", "seconds": float("nan")}, "seconds=nan"),
        ({"kind": "cpu", "seconds": "10"}, "seconds='10'"),
        ({"kind": "torch", "steps": 2.5}, "not an integer"),
        ({"kind": "torch", "steps": True}, "steps=True"),
        ({"kind": "torch", "steps": 10_000}, "from 1 to 1000"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_value(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        ProfileRequest.of(arguments)
