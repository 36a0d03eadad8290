"""The fields `pip` and `uv` of a `runtime_env`: their forms, and which requirements are satisfied.

`package_environments` installs the others.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

from syncline import optional
from syncline.records import dataclass

metadata = optional.deferred("importlib.metadata")

Installer = Literal["pip", "uv"]
INSTALLERS: tuple[Installer, ...] = get_args(Installer)
"""Fields of a `runtime_env` that name packages; an environment has at most one of them."""
_KEYS = {
    "pip": ("packages", "pip_version", "pip_check", "pip_install_options"),
    "uv": ("packages", "uv_version", "uv_check", "uv_pip_install_options"),
}


@dataclass(frozen=True, kw_only=True)
class Packages:
    """Packages that workers need."""

    installer: Installer
    lines: tuple[str, ...]
    """Lines of a requirements file."""
    options: tuple[str, ...] = ()
    """Further arguments of `pip install`."""
    version: str = ""
    """Version of the installer, such as "==24.0"; empty for any."""
    check: bool = False
    """True to fail if the requirements of packages contradict each other."""

    def missing(self) -> tuple[str, ...]:
        """Return the requirements that this interpreter does not satisfy, or that are not known."""
        return tuple(line for line in self.lines if not is_satisfied(line))


def normalize(field: str, value: object) -> object:
    """Return the normal form of the field `pip` or `uv`: a list of lines, or a dict with one.

    Raises TypeError for other types, ValueError for unknown keys and missing files.
    """
    if isinstance(value, (str, Path)):
        return _lines_of_file(field, Path(value))
    if isinstance(value, Mapping):
        return _normal_dict(field, value)
    return _checked_lines(field, value)


def of_environment(environment: Mapping[str, Any]) -> Packages | None:
    """Return the packages of a runtime environment in normal form; None if it has none."""
    for installer in INSTALLERS:
        value = environment.get(installer)
        if value:
            fields = value if isinstance(value, Mapping) else {"packages": value}
            options = fields.get(f"{installer}_install_options") or fields.get(
                f"{installer}_pip_install_options", ()
            )
            return Packages(
                installer=installer,
                lines=tuple(fields.get("packages", ())),
                options=tuple(options),
                version=fields.get(f"{installer}_version", ""),
                check=bool(fields.get(f"{installer}_check", False)),
            )
    return None


def without_satisfied(environment: Mapping[str, object]) -> Mapping[str, Any]:
    """Return the environment without its packages if this interpreter has them all."""
    packages = of_environment(environment)
    if packages is None or packages.missing():
        return environment
    return {name: value for name, value in environment.items() if name not in INSTALLERS}


def are_needed(environment: str) -> bool:
    """Return True if a runtime environment, as JSON, has packages."""
    return any(f'"{name}": ' in environment for name in INSTALLERS) and (
        of_environment(json.loads(environment)) is not None
    )


@lru_cache(maxsize=1024)
def is_satisfied(line: str) -> bool:
    """Return True if an installed distribution satisfies the requirement, or none is needed.

    Options, paths and URLs count as not satisfied, because the packages they install are unknown.
    """
    text = line.partition(" #")[0].strip()
    if not text or text.startswith("#"):
        return True
    requirements = _requirements_module()
    if requirements is None:
        return False
    try:
        requirement = requirements.Requirement(text)
    except requirements.InvalidRequirement:
        return False
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    return requirement.url is None and _is_installed(requirement, requirements, frozenset())


def _is_installed(requirement: Any, requirements: object, seen: frozenset[str]) -> bool:
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    if not requirement.specifier.contains(found.version, prereleases=True):
        return False
    for extra in requirement.extras:
        key = f"{requirement.name}[{extra}]"
        if key not in seen and not _has_extra(found, extra, requirements, seen | {key}):
            return False
    return True


def _has_extra(found: Any, extra: str, requirements: Any, seen: frozenset[str]) -> bool:
    """Return True if the requirements of an extra are installed."""
    for text in found.requires or ():
        needed = requirements.Requirement(text)
        marker = needed.marker
        if marker is None or marker.evaluate({"extra": ""}):
            continue  # not of the extra
        if marker.evaluate({"extra": extra}) and not _is_installed(needed, requirements, seen):
            return False
    return True


def _requirements_module() -> Any:
    for name in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _normal_dict(field: str, value: Mapping[Any, object]) -> dict[str, object]:
    known = _KEYS[field]
    unknown = [key for key in value if key not in known]
    if unknown or "packages" not in value:
        raise ValueError(
            f"`runtime_env[{field!r}]` has the keys {list(value)}: give 'packages', and perhaps "
            f"{', '.join(repr(key) for key in known[1:])}"
        )
    normal: dict[str, object] = {**value, "packages": normalize(field, value["packages"])}
    for key in known[1:]:
        if key.endswith("_options") and key in normal:
            normal[key] = _checked_lines(field, normal[key])
    return normal


def _lines_of_file(field: str, path: Path) -> list[str]:
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"`runtime_env[{field!r}]={str(path)!r}` is not a readable requirements file "
            f"({error.strerror}): pass its path, or a list such as ['numpy>=2']"
        ) from None
    return _lines(text.splitlines())


def _checked_lines(field: str, value: object) -> list[str]:
    if not isinstance(value, Sequence) or not all(isinstance(line, str) for line in value):
        raise TypeError(
            f"`runtime_env[{field!r}]={value!r}` is neither a list of strings nor a path: "
            f"write for example ['numpy>=2']"
        )
    return _lines(cast("Sequence[str]", value))


def _lines(lines: Iterable[str]) -> list[str]:
    stripped = (line.strip() for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]
