"""The token of a cluster, from the same sources as Ray, so that one setting serves all clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from syncline import settings
from syncline.core.cluster.token_sources import TOKEN_SOURCES, mode
from syncline.job_submission.errors import TokenError


def is_switched_on() -> bool | None:
    """Return True if RAY_AUTH_MODE asks to send a token; None if it is not set."""
    said = (settings.environment("RAY_AUTH_MODE") or "").lower()
    return None if not said else said == "token"


def headers(url: str, *, is_found_here: bool) -> Mapping[str, str]:
    """Return the headers with the token for the server at `url`, which requires one.

    An address given by the user may belong to anyone, so it gets the token only with
    RAY_AUTH_MODE=token, as in programs. A cluster found on this machine gets it unless
    RAY_AUTH_MODE forbids it.

    Raises:
        TokenError: The token must not be sent, or there is none.
    """
    switched_on = is_switched_on()
    if switched_on is False or (switched_on is None and not is_found_here):
        raise TokenError(
            f"{url} requires a token, and none was sent ({mode()}): set RAY_AUTH_MODE=token, and "
            f"put the token {TOKEN_SOURCES}"
        )
    token = _token()
    if not token:
        raise TokenError(f"{url} requires a token, and there is none: put it {TOKEN_SOURCES}")
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
            f"RAY_AUTH_TOKEN_PATH={named} cannot be read ({error.strerror}): correct or unset it"
        ) from None
