"""Installation of the finder, in this process and in the processes that it starts."""

from __future__ import annotations

import os
import sys

from syncline import settings
from syncline.as_ray import finder
from syncline.as_ray.finder import RayFinder
from syncline.as_ray.names import RAY
from syncline.core import engine as engines


def install() -> None:
    """Let `import ray` give syncline, here and in child processes. May be called again.

    Raises:
        RuntimeError: Ray itself is imported already, or the engine runs, whose workers would not
            have it.
    """
    if finder.installed() is not None:
        return
    _check_not_imported()
    if engines.current is not None:
        raise RuntimeError(
            "syncline is already running, and its workers would import Ray itself: call "
            "`syncline.as_ray.install()` before `init` and before the first use of syncline"
        )
    prepare_children()
    sys.meta_path.insert(0, RayFinder())


def install_in_child() -> RayFinder:
    """Install the finder in a process whose parent has it; return it."""
    found = finder.installed()
    if found is None:
        found = RayFinder()
        sys.meta_path.insert(0, found)
    return found


def prepare_children() -> None:
    """Set the variables by which child processes get the finder."""
    inherited = settings.environment("PYTHONPATH")
    entries = [settings.AS_RAY_STARTUP, *(inherited.split(os.pathsep) if inherited else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(entries))
    os.environ[settings.AS_RAY] = "1"


def _check_not_imported() -> None:
    module = sys.modules.get(RAY)
    if module is None:
        return
    place = getattr(module, "__file__", None) or "an unknown place"
    raise RuntimeError(
        f"`ray` is already imported, from {place}, and modules that hold it would not use "
        "syncline: call `syncline.as_ray.install()` before the first import of `ray` and of "
        "libraries that use it, or run `python -m syncline.as_ray script.py`"
    )
