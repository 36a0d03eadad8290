"""Where Ray looks for the token that a cluster may ask for, in words. Read by programs and by the
command line, so Ray is not needed.
"""

from __future__ import annotations

from syncline import settings

PLACES = (
    "in the variable RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token "
    "(on the cluster's head, `ray get-auth-token` shows it)"
)
"""All of them, the first that has something counts."""


def mode() -> str:
    """What the environment says of sending a token."""
    said = settings.environment("RAY_AUTH_MODE")
    return f"RAY_AUTH_MODE={said}" if said else "RAY_AUTH_MODE is not set"


def place() -> str:
    """Where the token of this process lies, or would lie."""
    if settings.environment("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = settings.environment("RAY_AUTH_TOKEN_PATH")
    return f"RAY_AUTH_TOKEN_PATH={path!r}" if path else "~/.ray/auth_token"
