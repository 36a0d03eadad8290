"""Lightning itself, which comes as two packages with classes of their own: `lightning` and
`pytorch_lightning`.

A `Trainer` of the one refuses a strategy of the other, so the package is taken that the program has
imported; the newer one where that does not tell.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from importlib.util import find_spec
from typing import Any

from syncline.optional import load

NEW, OLD = "lightning.pytorch", "pytorch_lightning"


def package(imported: Container[str]) -> str:
    """The package that a program means which has imported these modules."""
    if OLD in imported and NEW not in imported:
        return OLD
    return OLD if not _is_installed("lightning") and _is_installed(OLD) else NEW


def _is_installed(name: str) -> bool:
    found = find_spec(name)
    return (
        found is not None and found.origin is not None
    )  # a folder that happens to have the name has no origin


pl: Any = load(
    package(sys.modules), purpose="`syncline.train.lightning`", install="syncline[lightning]"
)
"""The package; ImportError at the import of this module if there is none."""
environments: Any = load(
    f"{pl.__name__}.plugins.environments",
    purpose="`syncline.train.lightning`",
    install="syncline[lightning]",
)
"""Its module of environments."""
