"""Virtual environments with the packages of a `runtime_env`, on top of this interpreter's packages.

Each set of packages has one environment per user, in `settings.package_environments()`. It sees all
packages of this interpreter; its own come first. Processes that need the same one at the same time
wait for the first, which installs it. An environment that was not used for `KEPT_DAYS` days is
removed when another one is made.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import time
import venv
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from syncline import settings
from syncline.core.packages import Packages
from syncline.exceptions import RuntimeEnvSetupError

KEPT_DAYS = 30
_READY = "ready"
_TAIL_LINES = 15
_OFFLINE = (
    "Temporary failure in name resolution",
    "Failed to establish a new connection",
    "Name or service not known",
    "Network is unreachable",
    "Connection refused",
    "ConnectTimeoutError",
    "NewConnectionError",
    "dns error",
    "error sending request",
)
"""Texts of pip and uv when they do not reach a package index."""

Report = Callable[[str], None]
"""Receives a line of the installer."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def python_with(packages: Packages, report: Report) -> Path:
    """Return the interpreter of an environment with the packages; install it if necessary.

    Raises RuntimeEnvSetupError with the installer's last lines if that fails.
    """
    root = settings.package_environments()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = root / _key(packages)
    with _locked(root / f"{directory.name}.lock"):
        ready = directory / _READY
        if ready.exists():
            os.utime(ready)
            return _python(directory)
        _remove_unused(root)
        shutil.rmtree(directory, ignore_errors=True)  # left by a process that was killed
        try:
            _install(packages, directory, report)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        ready.touch()
    return _python(directory)


def own_packages(python: Path) -> str:
    """Return the directory of the packages of an environment."""
    base = str(python.parent.parent)
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"  # Python 3.10
    return sysconfig.get_path("purelib", scheme, {"base": base, "platbase": base})


def _key(packages: Packages) -> str:
    """Return the name of an environment; it changes with the packages of this interpreter."""
    parents = [(path, os.stat(path).st_mtime_ns) for path in _parents()]
    content = [sys.version, sys.executable, parents, asdict(packages)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:20]


def _parents() -> list[str]:
    """Return the package directories of this interpreter."""
    directories = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        directories.append(site.getusersitepackages())
    return [path for path in dict.fromkeys(directories) if os.path.isdir(path)]


def _python(directory: Path) -> Path:
    return directory / "bin" / "python"


def _install(packages: Packages, directory: Path, report: Report) -> None:
    report(f"installing {', '.join(packages.lines)} with {packages.installer}")
    started = time.monotonic()
    has_pip = importlib.util.find_spec("pip") is not None
    uv = _find_uv() if packages.installer == "uv" else None
    builder = venv.EnvBuilder(with_pip=uv is None and not has_pip, symlinks=True)
    builder.create(directory)
    python = _python(directory)
    layered = "".join(f"import site; site.addsitedir({path!r})\n" for path in _parents())
    Path(own_packages(python), "_syncline_parent.pth").write_text(layered, encoding="utf-8")
    requirements = directory / "requirements.txt"
    requirements.write_text("\n".join(packages.lines) + "\n", encoding="utf-8")
    if uv is not None:
        install = [*uv, "pip", "install", "--python", str(python)]
        check = [*uv, "pip", "check", "--python", str(python)]
    else:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        # The comparison of all installed packages takes seconds; `pip check` does it on request.
        install, check = [*pip, "install", "--no-warn-conflicts"], [*pip, "check"]
        if packages.version and packages.installer == "pip":
            _run([*install, f"pip{packages.version}"], packages, report)
    _run([*install, *packages.options, "-r", str(requirements)], packages, report)
    if packages.check:
        _run(check, packages, report)
    report(f"installed in {time.monotonic() - started:.1f} s, in {directory}")


def _find_uv() -> list[str] | None:
    """Return the command of uv; None if there is none, and pip installs instead."""
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    path = shutil.which("uv")
    return None if path is None else [path]


def _run(command: Sequence[str], packages: Packages, report: Report) -> None:
    """Run the installer and report its lines; RuntimeEnvSetupError if it fails."""
    environment = settings.inherited_environment()
    for name in ("PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_USER", "PYTHONPATH", "PYTHONHOME"):
        environment.pop(name, None)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    offline = False
    assert process.stdout is not None
    for line in process.stdout:
        text = line.rstrip()
        offline = offline or any(sign in text for sign in _OFFLINE)
        if text and not text.startswith("Requirement already satisfied"):
            tail.append(text)
            report(text)
    code = process.wait()
    if code:
        raise RuntimeEnvSetupError(_failure(packages, code, offline, tail))


def _failure(packages: Packages, code: int, offline: bool, tail: Sequence[str]) -> str:
    wanted = ", ".join(packages.lines)
    reason = (
        "no package index could be reached. Install the packages in the program's own environment "
        "while the machine is online, or name a directory with their files: "
        f"{{'packages': [...], '{_option_name(packages)}': ['--no-index', '--find-links', DIR]}}"
        if offline
        else f"the installer exited with code {code}. Correct the requirements, or install them in "
        "the program's own environment"
    )
    last = "\n".join(tail)
    return f"The packages {wanted} were not installed: {reason}.\n{last}"


def _option_name(packages: Packages) -> str:
    return "pip_install_options" if packages.installer == "pip" else "uv_pip_install_options"


def _remove_unused(root: Path) -> None:
    """Remove environments that no process has used for `KEPT_DAYS` days."""
    oldest = time.time() - KEPT_DAYS * 86_400
    for ready in root.glob(f"*/{_READY}"):
        try:
            if ready.stat().st_mtime < oldest:
                shutil.rmtree(ready.parent, ignore_errors=True)
        except OSError:  # removed by another process
            continue
