"""Waiting for conditions."""

from __future__ import annotations

import pytest

from syncline.testing import eventually


def test_first_true_value_is_returned() -> None:
    answers = iter([0, "", None, "there", "later"])
    assert eventually(lambda: next(answers)) == "there"


def test_timeout_is_an_error_with_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"the moon is full.*\[\]"):
        eventually(list, within_s=0.01, what="the moon is full")
