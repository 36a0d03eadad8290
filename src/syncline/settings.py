"""Settings from environment variables: this module is the only one that reads them.

Covered: the variables whose names begin with `SYNCLINE_`, and access to any other variable for the
modules that need one. An argument given in the program beats the variable, which beats the default;
this module knows nothing of arguments. Variables are read when they are asked for, so a program may
set them until then.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


def environment(name: str, default: str | None = None) -> str | None:
    """The value of a variable as text, or `default` where it is not set."""
    return os.environ.get(name, default)


def inherited_environment() -> dict[str, str]:
    """A copy of all variables, for a process that is to be started."""
    return dict(os.environ)


def flag(name: str) -> bool:
    """A yes-or-no variable. ValueError for a value that is neither."""
    text = (environment(name) or "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{name}={text!r} is neither yes nor no: set it to 1 or 0, or remove it")


def address() -> str | None:
    """`SYNCLINE_ADDRESS`: the cluster that `init()` connects to when no `address` is given."""
    return environment("SYNCLINE_ADDRESS") or None


def namespace() -> str | None:
    """`SYNCLINE_NAMESPACE`: the namespace of named actors when `init` names none."""
    return environment("SYNCLINE_NAMESPACE") or None


def full_traceback() -> bool:
    """`SYNCLINE_FULL_TRACEBACK=1`: tracebacks show the frames of syncline too."""
    return flag("SYNCLINE_FULL_TRACEBACK")


def faults() -> str:
    """`SYNCLINE_FAULTS`: faults to inject, as `syncline.faults` describes; empty for none."""
    return environment("SYNCLINE_FAULTS") or ""


def temporary_directory() -> Path:
    """`SYNCLINE_TMPDIR`: below which session directories are made; the system's temporary directory
    by default.
    """
    return Path(environment("SYNCLINE_TMPDIR") or tempfile.gettempdir())


def storage_path() -> str:
    """`SYNCLINE_STORAGE_PATH`: where runs are kept when the program does not say, a directory or a
    URI; `~/syncline_results` by default.
    """
    return environment("SYNCLINE_STORAGE_PATH") or "~/syncline_results"


def local_path(path: str | os.PathLike[str]) -> str:
    """`path` on this machine, absolute, with `~` expanded; for who has no home, `~` is where the
    program runs.
    """
    return os.path.abspath(os.path.expanduser(os.fspath(path)).removeprefix("~/"))


def train_collective_timeout_s() -> float:
    """`SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S`: how long ranks wait for one another in `report` and
    `collective`; half an hour.
    """
    return _seconds("SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S", "1800")


def termination_notice_s() -> float:
    """`SYNCLINE_TERMINATION_NOTICE_S`: how long after SIGTERM a machine is expected to take its
    processes away for good; 30 s.
    """
    return _seconds("SYNCLINE_TERMINATION_NOTICE_S", "30")


def train_resource_timeout_s() -> float:
    """`SYNCLINE_TRAIN_RESOURCE_TIMEOUT_S`: how long training waits for resources that nodes took
    with them, or that an autoscaler is to bring; half an hour.
    """
    return _seconds("SYNCLINE_TRAIN_RESOURCE_TIMEOUT_S", "1800")


def _seconds(name: str, default: str) -> float:
    text = environment(name) or default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise ValueError(
            f"{name}={text!r} is no number of seconds above 0: correct it, or remove it"
        )
    return seconds


SESSION = "SYNCLINE_SESSION"
"""Set by syncline, not by people: which session the child processes of a program belong to."""


def session() -> str | None:
    """The session that this process's parent takes part in."""
    return environment(SESSION)


def start_method() -> str:
    """SYNCLINE_START_METHOD: "fork" (workers are copies of a process that has imported what they
    need) or "spawn".
    """
    method = environment("SYNCLINE_START_METHOD", "fork")
    if method not in ("fork", "spawn"):
        raise ValueError(
            f"SYNCLINE_START_METHOD={method!r} is neither 'fork' nor 'spawn': set one of them, or none"
        )
    return method
