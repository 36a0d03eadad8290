"""Counterparts of Ray's module names, and advice for names without one."""

from __future__ import annotations

from syncline.cli.migration.remedies import remedy

RAY = "ray"
OURS = "syncline"
API_VERSION = "2.60.0"
"""Version of Ray whose API syncline has."""

_OWN = frozenset(
    {
        "as_ray", "cli", "core", "dashboard", "faults", "optional", "records", "rl", "runs",
        "settings", "storage", "suggestions", "testing",
    }
)  # fmt: skip
"""Modules of syncline that are unrelated to Ray's modules of the same name."""
_REPLACED = {"ray.cluster_utils": "syncline.as_ray.cluster_utils"}
"""Modules that need Ray itself, and what stands in for them."""
_JOBS = "ray.dashboard.modules.job"
"""Modules of jobs, which syncline has below its own dashboard."""


def is_ray(name: str) -> bool:
    """Return True for `ray` and the names below it."""
    return name == RAY or name.startswith(RAY + ".")


def counterpart(name: str) -> str | None:
    """Return syncline's form of a dotted name of Ray; None if the module is unrelated."""
    if name in _REPLACED:
        return _REPLACED[name]
    below = name.removeprefix(RAY)
    is_own = below[1:].partition(".")[0] in _OWN
    if is_own and not (f"{_JOBS}.".startswith(f"{name}.") or name.startswith(f"{_JOBS}.")):
        return None
    return OURS + below


def advice(name: str, error: BaseException | None = None) -> str:
    """Return a sentence on a dotted name of Ray that syncline lacks, with the remedy of `error`, if
    it has one.
    """
    hint = getattr(error, "remedy", None) or remedy(name)
    said = f": {hint}" if hint else ""
    return f"`ray` is syncline in this program, and syncline has no counterpart of `{name}`{said}"
