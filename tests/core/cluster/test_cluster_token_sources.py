"""Descriptions of the sources of a token."""

from __future__ import annotations

import subprocess
import sys

import pytest

from syncline.core.cluster import token_sources

VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_first_source_that_is_set_counts(monkeypatch):
    assert token_sources.token_source() == "~/.ray/auth_token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/the/token")
    assert token_sources.token_source() == "RAY_AUTH_TOKEN_PATH='/the/token'"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert token_sources.token_source() == "RAY_AUTH_TOKEN"


def test_the_mode_is_described(monkeypatch):
    assert token_sources.mode() == "RAY_AUTH_MODE is not set"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert token_sources.mode() == "RAY_AUTH_MODE=disabled"


def test_the_command_line_works_without_ray():
    program = (
        "import sys; sys.modules['ray'] = None; from syncline.job_submission import cluster_token; "
        "print(cluster_token.is_switched_on())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.strip() == "None", done.stderr
