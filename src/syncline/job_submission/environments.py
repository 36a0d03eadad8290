"""The runtime environment of a job: local directories are sent to the cluster as packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from syncline.job_submission.packages import Package, pack


def sent(given: Mapping[str, Any], upload: Callable[[Package], None]) -> dict[str, Any]:
    """Return a runtime environment whose local directories are packages.

    `syncline.init()` in the program finds the cluster through SYNCLINE_ADDRESS, unless the
    environment sets it.

    Args:
        given: The runtime environment.
        upload: Function that receives local directories as packages.

    Raises:
        JobError: A directory cannot be sent.
    """
    result = dict(given)
    excludes = result.pop("excludes", ())
    if _is_here(result.get("working_dir")):
        package = pack(result["working_dir"], excludes=excludes)
        upload(package)
        result["working_dir"] = package.uri
    modules = []
    for module in result.get("py_modules", ()):
        if _is_here(module):
            package = pack(module, excludes=excludes, keep_name=True)
            upload(package)
            module = package.uri
        modules.append(module)
    if modules:
        result["py_modules"] = modules
    result["env_vars"] = {"SYNCLINE_ADDRESS": "auto", **result.get("env_vars", {})}
    return result


def _is_here(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)
