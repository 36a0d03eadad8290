"""The optional libraries of pictures, and what is said where one is missing."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str) -> Any:
    """A module of plotly or Optuna.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"Pictures of a search need {module.partition('.')[0]}, which cannot be imported ({error}): `pip install 'syncline[tune]'`."
        ) from error
