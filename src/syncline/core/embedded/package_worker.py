"""A worker whose runtime environment has packages: the interpreter that installs them if necessary,
and then becomes the worker in their virtual environment.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

from syncline import settings
from syncline.core import packages
from syncline.core.embedded import worker
from syncline.core.embedded.fork_server_messages import ForkServerConfig, LaunchWorker
from syncline.core.package_environments import own_packages, python_with
from syncline.exceptions import RuntimeEnvSetupError


def run_installed(arguments: bytes) -> None:
    """Install missing packages and become the worker; never returns."""
    code = 1
    try:
        fds, start, config = pickle.loads(arguments)
        failure = _become(fds, start, config, arguments)
        worker.run(fds, start, config, failure)
        code = 0
    finally:
        os._exit(code)


def _become(
    fds: list[int], start: LaunchWorker, config: ForkServerConfig, arguments: bytes
) -> Exception | None:
    """Replace this interpreter, if packages are missing; return the error of the installation."""
    wanted = packages.of_environment(json.loads(start.environment))
    if wanted is None or not wanted.missing():
        return None
    try:
        os.chdir(start.cwd)
        python = python_with(wanted, lambda line: _report(fds[2], line))
        code = (
            f"import sys; sys.path[:] = {[own_packages(python), *sys.path]!r}; "
            "from syncline.core.embedded.fork_server import run_spawned; "
            f"run_spawned({arguments!r})"
        )
        os.environ[settings.PACKAGE_WORKER] = str(python)
        os.environ["VIRTUAL_ENV"] = str(Path(python).parent.parent)
        os.execv(python, [str(python), "-c", code])
    except (OSError, RuntimeEnvSetupError) as error:
        return RuntimeEnvSetupError(f"A worker could not set up its packages: {error}")
    except Exception as error:
        return RuntimeEnvSetupError(f"A worker could not set up its packages: {error!r}")


def _report(fd: int, line: str) -> None:
    try:
        os.write(fd, f"{line}\n".encode(errors="replace"))
    except OSError:  # the driver is gone
        sys.exit(1)
