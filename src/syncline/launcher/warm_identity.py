"""Identity of a template: everything that a process forked from it could not undo.

A job uses the warm template only if its identity is the template's. Variables that libraries read
when they are imported belong to it, and so do interpreter, installed packages, limits and control
group. Other variables, the working directory and the arguments are those of the job.
"""

from __future__ import annotations

import hashlib
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from syncline import system

_PREFIXES = (
    "ATEN", "DNNL", "GLIBC", "GOMP", "HIP", "HSA", "KMP", "LC_", "LD_", "MALLOC", "MKL", "NUMEXPR",
    "OMP", "ONEDNN", "OPENBLAS", "PYTHON", "PYTORCH", "ROC", "TORCH", "TRITON",
)  # fmt: skip
_NAMES = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGLEVEL", "TMPDIR", "TZ", "SYNCLINE_START_METHOD"}
)
_NOT = ("TORCHELASTIC", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
_LIMITS = tuple(
    getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)
_OWN = ("launcher/*.py", "core/embedded/*_server*.py", "core/embedded/stack_dump.py")
"""Files of syncline that run in the template."""


def digest(variables: Mapping[str, str], directory: str | None = None) -> str:
    """Return the identity of this process as a template.

    Args:
        variables: Its environment variables.
        directory: Directory in which it has started; the working directory by default.
    """
    found = hashlib.sha256()
    for fact in (*_variables(variables, directory or os.getcwd()), *_process(), *_packages()):
        found.update(repr(fact).encode() + b"\n")
    return found.hexdigest()[:32]


def _variables(variables: Mapping[str, str], directory: str) -> Iterator[object]:
    for name, value in sorted(variables.items()):
        if name in _NAMES or (name.startswith(_PREFIXES) and not name.startswith(_NOT)):
            yield name, value
    relative = variables.get("PYTHONPATH", "").split(os.pathsep)
    yield [os.path.join(directory, entry) for entry in relative] if relative != [""] else []


def _process() -> Iterator[object]:
    yield os.getuid(), os.getgid(), sorted(os.getgroups())
    mask = os.umask(0o077)
    os.umask(mask)
    yield mask, os.nice(0), system.allowed_cpus()
    for limit in _LIMITS:
        yield limit, resource.getrlimit(limit)
    for name in ("cgroup", "ns/mnt", "ns/net", "ns/pid"):
        path = Path("/proc/self", name)
        try:
            yield name, os.readlink(path) if path.is_symlink() else path.read_text()
        except OSError:
            continue


def _packages() -> Iterator[object]:
    yield os.path.realpath(sys.executable), sys.executable, sys.version, sys.prefix
    for entry in sorted(set(sys.path)):
        if "-packages" in entry:  # an installation or removal changes the directory
            yield entry, _modified(entry)
    source = Path(__file__).parents[1]
    files = [file for pattern in _OWN for file in sorted(source.glob(pattern))]
    yield str(source), [(file.name, _modified(file)) for file in files]


def _modified(path: str | Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
