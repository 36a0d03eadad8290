"""The token that a cluster may ask for, found where Ray finds it, so that one setting serves
programs, nodes and the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from syncline import settings
from syncline.cli.output import CommandError
from syncline.core.cluster.token_sources import TOKEN_SOURCES, mode


class TokenError(CommandError):
    """The cluster asks for a token, and none or another one is here."""


def is_switched_on() -> bool | None:
    """Whether RAY_AUTH_MODE says to show a token; None where it says nothing."""
    said = (settings.environment("RAY_AUTH_MODE") or "").lower()
    return None if not said else said == "token"


def headers(url: str, *, is_found_here: bool) -> Mapping[str, str]:
    """What shows the token to the server at `url`, which has asked for it. TokenError where none is
    to be shown, or none is here.

    As with programs, an address that the user names could be anybody's and gets one only where
    RAY_AUTH_MODE says so; a cluster that was found on this machine gets it unless that says no.
    """
    switched_on = is_switched_on()
    if switched_on is False or (switched_on is None and not is_found_here):
        raise TokenError(
            f"{url} asks for a token, and none was shown ({mode()}): set RAY_AUTH_MODE=token, and have the token {TOKEN_SOURCES}"
        )
    token = _token()
    if not token:
        raise TokenError(f"{url} asks for a token, and none is here: have it {TOKEN_SOURCES}")
    return {"Authorization": f"Bearer {token}"}


def _token() -> str | None:
    given = settings.environment("RAY_AUTH_TOKEN")
    if given:
        return given.strip()
    named = settings.environment("RAY_AUTH_TOKEN_PATH")
    try:
        return Path(named or os.path.expanduser("~/.ray/auth_token")).read_text().strip()
    except OSError as error:
        if named is None:
            return None
        raise TokenError(
            f"RAY_AUTH_TOKEN_PATH={named} cannot be read ({error.strerror}): correct it, or remove it"
        ) from None
