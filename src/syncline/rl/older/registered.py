"""Networks, distributions and preprocessors that a program registered by name.

Trial processes also know the names. Env runners get configurations that contain the classes.
"""

from __future__ import annotations

from typing import Any, Literal

from syncline.rl.value_types import Options
from syncline.suggestions import did_you_mean
from syncline.tune.registry import register_part, registered_parts

Kind = Literal["custom_model", "custom_action_dist", "custom_preprocessor"]

KINDS: tuple[Kind, ...] = ("custom_model", "custom_action_dist", "custom_preprocessor")


def register(kind: Kind, name: str, cls: type[object]) -> None:
    """Register a class under a name."""
    register_part(kind, name, cls)


def resolve(kind: Kind, given: object) -> Any:
    """Return the class registered under a name; return a class unchanged.

    Raises:
        ValueError: Nothing is registered under the name.
    """
    if not isinstance(given, str):
        return given
    known = registered_parts(kind)
    if given not in known:
        raise ValueError(
            f"`{kind}={given!r}` is not registered.{did_you_mean(given, known)} Call "
            f"`ModelCatalog.register_{kind}({given!r}, …)` first; registered names: "
            f"{sorted(known) or 'none'}."
        )
    return known[given]


def resolved(model_config: Options) -> Options:
    """Replace registered names in network options with their classes."""
    made = dict(model_config)
    for kind in KINDS:
        if made.get(kind):
            made[kind] = resolve(kind, made[kind])
    return made
