"""Networks, distributions and preprocessors that a program registered by name.

Names hold in the process that registered them: configurations contain the classes themselves before
they go to other processes.
"""

from __future__ import annotations

from typing import Any, Literal

from syncline.suggestions import did_you_mean

Kind = Literal["custom_model", "custom_action_dist", "custom_preprocessor"]

_REGISTERED: dict[Kind, dict[str, type[Any]]] = {
    "custom_model": {},
    "custom_action_dist": {},
    "custom_preprocessor": {},
}
KINDS: tuple[Kind, ...] = tuple(_REGISTERED)


def register(kind: Kind, name: str, cls: type[Any]) -> None:
    """Register a class under a name."""
    _REGISTERED[kind][name] = cls


def resolve(kind: Kind, given: Any) -> Any:
    """Return the class for a name, or for a class that class.

    Raises:
        ValueError: Nothing is registered under the name.
    """
    if not isinstance(given, str):
        return given
    known = _REGISTERED[kind]
    if given not in known:
        raise ValueError(
            f"`{kind}={given!r}` is registered nowhere.{did_you_mean(given, known)} Call "
            f"`ModelCatalog.register_{kind}({given!r}, …)` first; registered are "
            f"{sorted(known) or 'none'}."
        )
    return known[given]


def resolved(model_config: dict[str, Any]) -> dict[str, Any]:
    """Return options of networks with classes in place of registered names."""
    made = dict(model_config)
    for kind in KINDS:
        if made.get(kind):
            made[kind] = resolve(kind, made[kind])
    return made
