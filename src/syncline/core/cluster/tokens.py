"""The token that a cluster may ask for: whether this program sends one, and where it is looked
for.
"""

from __future__ import annotations

import ray.exceptions
from ray._private.authentication import authentication_token_setup as rays
from ray._private.authentication.authentication_utils import is_token_auth_enabled

from syncline import settings
from syncline.core.cluster.token_places import PLACES, mode, place


def refresh(*, is_found_here: bool) -> None:
    """Make what the environment says now count; Ray reads it when it is imported.

    A cluster that was found on this machine gets the token that lies there without being told to,
    as with Ray: it belongs to the same user. An address that the program names gets one only where
    RAY_AUTH_MODE says so: it could be anybody's.
    """
    rays.Config.initialize("")
    rays.AuthenticationTokenLoader.instance().reset_cache()
    if is_found_here:
        rays.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def headers() -> dict[str, str]:
    """What goes with every call. ConnectionError where there is to be a token but none is found."""
    if not is_token_auth_enabled():
        return {}
    try:
        return dict(rays.AuthenticationTokenLoader.instance().get_token_for_http_header())
    except ray.exceptions.AuthenticationError:
        path = settings.environment("RAY_AUTH_TOKEN_PATH")
        tried = (
            f"the file of RAY_AUTH_TOKEN_PATH={path!r} is missing or empty"
            if path
            else "there is none"
        )
        raise ConnectionError(
            f"RAY_AUTH_MODE=token says to send the cluster's token, but {tried}: put it {PLACES}, or unset RAY_AUTH_MODE for a cluster "
            f"that asks for none."
        ) from None


def refused() -> str:
    """What to tell where the cluster refuses this program."""
    if not is_token_auth_enabled():
        return f"it asks for a token, and this program sends none ({mode()}). Set RAY_AUTH_MODE=token, and have the cluster's token {PLACES}."
    return f"it asks for a token, and refuses the one that this program sends, from {place()}. Have the cluster's token {PLACES}."
