"""Setting fault points from tests."""

from __future__ import annotations

import pytest

from syncline import faults
from syncline.testing import fault_environment, faults_set


def test_faults_of_this_process_end_with_the_block() -> None:
    with faults_set({"somewhere": "raise"}), pytest.raises(faults.FaultInjected):
        faults.reach("somewhere")
    faults.reach("somewhere")


def test_environment_for_a_program() -> None:
    assert fault_environment({"a": "kill:3", "b": "sleep:0.5"}) == {
        "SYNCLINE_FAULTS": "a=kill:3,b=sleep:0.5"
    }


def test_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="explode"):
        fault_environment({"a": "explode"})
