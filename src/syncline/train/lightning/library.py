"""Import of Lightning, which exists as two packages with separate classes: `lightning` and
`pytorch_lightning`.

A `Trainer` of one refuses a strategy of the other, so the package that the program has imported is
used. If that is ambiguous, it is the newer one, `lightning`.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from importlib.util import find_spec
from typing import Any

from syncline.optional import load

NEW, OLD = "lightning.pytorch", "pytorch_lightning"


def package(imported: Container[str]) -> str:
    """Return the package to use for a program that has imported these modules."""
    if OLD in imported and NEW not in imported:
        return OLD
    return OLD if not _is_installed("lightning") and _is_installed(OLD) else NEW


def _is_installed(name: str) -> bool:
    found = find_spec(name)
    # A directory that happens to have the name has no origin.
    return found is not None and found.origin is not None


pl: Any = load(
    package(sys.modules), purpose="`syncline.train.lightning`", install="syncline[lightning]"
)
"""Lightning's package. Importing this module raises ImportError without one."""
environments: Any = load(
    f"{pl.__name__}.plugins.environments",
    purpose="`syncline.train.lightning`",
    install="syncline[lightning]",
)
"""Lightning's module of environments."""
