"""Versions of syncline on both sides, as a worker compares them; those of Ray and Python are in
test_cluster_head.
"""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from syncline import __version__
from syncline.core.cluster import versions


def test_the_same_version_is_fine():
    versions.check_program(versions.of_program(), "10.0.0.1")


def test_another_version_is_told_with_both_and_the_node():
    with pytest.raises(
        RuntimeError,
        match=rf"runs syncline 0\.0\.1, but the node 10\.0\.0\.1 has syncline {__version__}",
    ):
        versions.check_program({versions.SYNCLINE_KEY: "0.0.1"}, "10.0.0.1")


def test_a_program_that_does_not_say_is_believed():
    versions.check_program({}, "10.0.0.1")
