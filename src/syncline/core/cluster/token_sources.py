"""Descriptions of the places where Ray looks for a cluster's token; does not need Ray."""

from __future__ import annotations

from syncline import settings

TOKEN_SOURCES = (
    "in the variable RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in "
    "~/.ray/auth_token (on the cluster's head, `ray get-auth-token` shows it)"
)
"""All sources in order of precedence."""


def mode() -> str:
    """Describe RAY_AUTH_MODE, which decides whether a token is sent."""
    value = settings.environment("RAY_AUTH_MODE")
    return f"RAY_AUTH_MODE={value}" if value else "RAY_AUTH_MODE is not set"


def token_source() -> str:
    """Describe the source of this process's token."""
    if settings.environment("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = settings.environment("RAY_AUTH_TOKEN_PATH")
    return f"RAY_AUTH_TOKEN_PATH={path!r}" if path else "~/.ray/auth_token"
