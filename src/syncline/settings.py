"""Settings from environment variables: the only module that reads them.

It covers the `SYNCLINE_` variables, and gives other modules access to any variable that they need.
An argument in the program overrides the variable, and the variable overrides the default; this
module does not know the arguments. Each call reads the variable anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from syncline import optional

tempfile = optional.deferred("tempfile")  # it imports the random generators
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


def environment(name: str, default: str | None = None) -> str | None:
    """Return the value of a variable, or `default` if it is not set."""
    return os.environ.get(name, default)


def inherited_environment() -> dict[str, str]:
    """Return a copy of all variables, for a child process."""
    return dict(os.environ)


def raw_environment() -> dict[Any, Any]:
    """Return a copy of all variables as the system encodes them, to detect a change in a twentieth
    of the time of `inherited_environment`.
    """
    return dict(getattr(os.environ, "_data", os.environ))


def environment_for_ray() -> dict[str, str]:
    """Return a copy of all variables, for a process that imports Ray itself, also in a program that
    imports syncline as `ray`.
    """
    variables = inherited_environment()
    if variables.pop(AS_RAY, None):
        entries = variables.pop("PYTHONPATH", "").split(os.pathsep)
        kept = [entry for entry in entries if entry not in ("", AS_RAY_STARTUP)]
        if kept:
            variables["PYTHONPATH"] = os.pathsep.join(kept)
    return variables


def flag(name: str) -> bool:
    """Return the value of a boolean variable; raise ValueError if it is not one."""
    text = (environment(name) or "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{name}={text!r} is not a boolean: set it to 1 or 0, or remove it")


def portable() -> bool:
    """Return `SYNCLINE_PORTABLE`: True to avoid calls that only Linux has, as on other systems."""
    return flag("SYNCLINE_PORTABLE")


AS_RAY = "SYNCLINE_AS_RAY"
"""Variable that `syncline.as_ray` sets for child processes. Users do not set it."""
AS_RAY_STARTUP = str(Path(__file__).parent / "as_ray" / "startup")
"""Directory that `syncline.as_ray` adds to PYTHONPATH: its `sitecustomize.py` prepares children."""


LOCAL_JOB = "SYNCLINE_LOCAL_JOB"
"""Variable with the id of the job on this machine in which a program runs. Users do not set it."""


def is_local_job() -> bool:
    """Return True in the program of a job on this machine, see `syncline.job_submission`."""
    return bool(environment(LOCAL_JOB))


def is_as_ray() -> bool:
    """Return True if `import ray` gives syncline in this program."""
    return flag(AS_RAY)


def address() -> str | None:
    """Return `SYNCLINE_ADDRESS`: the cluster that `init()` connects to without `address`.

    "local" is the same as none. In programs that import syncline as `ray`, `RAY_ADDRESS` has the
    same meaning.
    """
    variable = environment("SYNCLINE_ADDRESS")
    if not variable and is_as_ray():
        variable = environment("RAY_ADDRESS")
    return None if variable in (None, "", "local") else variable


def visible_gpus() -> str | None:
    """Return `CUDA_VISIBLE_DEVICES`, or ROCm's `HIP_VISIBLE_DEVICES`; None if neither is set."""
    return environment("CUDA_VISIBLE_DEVICES", environment("HIP_VISIBLE_DEVICES"))


def keeps_cuda_visible_devices() -> bool:
    """Return `SYNCLINE_NOSET_CUDA_VISIBLE_DEVICES`: True if tasks and actors see all GPUs.

    By default they see those assigned to them. Ray's variable
    `RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES` has the same meaning.
    """
    return flag("SYNCLINE_NOSET_CUDA_VISIBLE_DEVICES") or flag(
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
    )


def namespace() -> str | None:
    """Return `SYNCLINE_NAMESPACE`: the namespace of named actors if `init` gets none."""
    return environment("SYNCLINE_NAMESPACE") or None


def full_traceback() -> bool:
    """Return `SYNCLINE_FULL_TRACEBACK`: True if tracebacks also show syncline's own frames."""
    return flag("SYNCLINE_FULL_TRACEBACK")


def faults() -> str:
    """Return `SYNCLINE_FAULTS`: the faults to inject (see `syncline.faults`); empty for none."""
    return environment("SYNCLINE_FAULTS") or ""


def temporary_directory() -> Path:
    """Return `SYNCLINE_TMPDIR`: the parent of session directories.

    The default is the system's temporary directory.
    """
    return Path(environment("SYNCLINE_TMPDIR") or tempfile.gettempdir())


def shared_memory() -> Path | None:
    """Return `SYNCLINE_SHARED_MEMORY`: the file system in memory for snapshots of training.

    None for the system's. Set it where `/dev/shm` is too small and another one is mounted.
    """
    text = environment("SYNCLINE_SHARED_MEMORY")
    return Path(text) if text else None


def storage_path() -> str:
    """Return `SYNCLINE_STORAGE_PATH`: the default directory or URI of runs.

    The default is `~/syncline_results`.
    """
    return environment("SYNCLINE_STORAGE_PATH") or "~/syncline_results"


def local_path(path: str | os.PathLike[str]) -> str:
    """Return `path` as an absolute local path with `~` expanded.

    For a user without a home directory, `~` is the working directory.
    """
    return os.path.abspath(os.path.expanduser(os.fspath(path)).removeprefix("~/"))


def train_collective_timeout_s() -> float:
    """Return `SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S`: seconds to wait for other ranks.

    Applies to `report` and `collective`. The default is 1800.
    """
    return _seconds("SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S", "1800")


def termination_notice_s() -> float:
    """Return `SYNCLINE_TERMINATION_NOTICE_S`: seconds that ranks may run after SIGTERM.

    The default is 25: Kubernetes and Slurm kill a process 30 seconds after SIGTERM, and the program
    needs some of them to stop its workers and to write the record.
    """
    return _seconds("SYNCLINE_TERMINATION_NOTICE_S", "25")


def train_resource_timeout_s() -> float:
    """Return `SYNCLINE_TRAIN_RESOURCE_TIMEOUT_S`: seconds that training waits for resources.

    Applies to resources of lost nodes and of nodes that an autoscaler adds. The default is 1800.
    """
    return _seconds("SYNCLINE_TRAIN_RESOURCE_TIMEOUT_S", "1800")


def rl_record() -> bool:
    """Return `SYNCLINE_RL_RECORD`: False if algorithms outside of searches write no records."""
    return environment("SYNCLINE_RL_RECORD") is None or flag("SYNCLINE_RL_RECORD")


def serve_local_testing() -> bool:
    """Return `SYNCLINE_SERVE_LOCAL_TESTING`: True if `serve.run` runs everything in this process.

    Ray's variable `RAY_SERVE_FORCE_LOCAL_TESTING_MODE` has the same meaning.
    """
    return flag("SYNCLINE_SERVE_LOCAL_TESTING") or flag("RAY_SERVE_FORCE_LOCAL_TESTING_MODE")


def wait_for_resources_s() -> float:
    """Return `SYNCLINE_WAIT_FOR_RESOURCES_S`: seconds that `init` waits for other programs.

    It waits until other programs of this user on this machine leave the CPUs and GPUs. By default
    it does not wait.
    """
    name = "SYNCLINE_WAIT_FOR_RESOURCES_S"
    return _seconds(name, "0") if environment(name) else 0.0


def _seconds(name: str, default: str) -> float:
    text = environment(name) or default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise ValueError(
            f"{name}={text!r} is not a positive number of seconds: correct it, or remove it"
        )
    return seconds


SESSION = "SYNCLINE_SESSION"
"""Variable in which syncline passes the session to child processes. Users do not set it."""


def session() -> str | None:
    """Return the session of this process's parent."""
    return environment(SESSION)


PACKAGE_WORKER = "SYNCLINE_PACKAGE_WORKER"
"""Variable of workers with packages of their own. Users do not set it."""


def is_package_worker() -> bool:
    """Return True in a worker that has packages which the program's interpreter lacks."""
    return environment(PACKAGE_WORKER) is not None


def package_environments() -> Path:
    """Return the directory of this user's environments with packages of a `runtime_env`."""
    caches = environment("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(caches, "syncline", "environments")


def start_method() -> str:
    """Return `SYNCLINE_START_METHOD`: how worker processes start.

    "fork" copies a process that has done the imports; "spawn" starts a new interpreter.
    """
    method = environment("SYNCLINE_START_METHOD", "fork")
    if method not in ("fork", "spawn"):
        raise ValueError(
            f"SYNCLINE_START_METHOD={method!r} is unknown: set 'fork' or 'spawn', or remove it"
        )
    return method
