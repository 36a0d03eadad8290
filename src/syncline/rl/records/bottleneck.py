"""Find the bottleneck of an algorithm from the `time_split` of its results. Pure.

Values may come from untrusted records: a value that is not a number counts as 0. This module does
not import libraries, because the dashboard reads records without them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PARTS: Mapping[str, str] = {
    "environment": "environment",
    "inference": "inference",
    "connectors": "connectors and bookkeeping",
    "learning": "learning",
    "evaluation": "evaluation",
    "waiting": "waiting",
    "other": "other",
}
"""Parts of the time, with their labels."""
RECENT = 20
"""Number of iterations to sum, because a single one may contain an evaluation."""
_FULL = 0.85
"""Minimum utilization at which a learner that overlaps with the runners is the bottleneck."""
_NONE_LIMITS = 0.3
"""Minimum fraction of the time at which a part is the bottleneck."""


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Division of the time."""

    rows: Mapping[str, Mapping[str, float]]
    """Fraction of each of `PARTS`: one row, "iteration", if sampling and learning alternate,
    otherwise "env runners" and "learner".
    """
    limit: str
    """Limiting part; empty if there is none."""
    advice: str
    """Explanation and advice in one sentence."""


def bottleneck(
    seconds: Mapping[str, object], *, num_env_runners: int = 0, num_envs: int = 1
) -> Bottleneck | None:
    """Return the bottleneck, or None without times.

    Args:
        seconds: Result of `TimeSplit.seconds`.
        num_env_runners: Env runners in other processes.
        num_envs: Number of environments per runner.
    """
    found = {
        name: _number(seconds.get(f"{name}_s"))
        for name in ("environment", "inference", "sampling_other", "sampling", "learning")
    }
    total, evaluation = _number(seconds.get("total_s")), _number(seconds.get("evaluation_s"))
    if total <= 0:
        return None
    environment, inference = found["environment"], found["inference"]
    connectors = found["sampling_other"]
    busy, sampling, learning = (
        environment + inference + connectors,
        found["sampling"],
        found["learning"],
    )
    acting = {"environment": environment, "inference": inference, "connectors": connectors}
    if busy > 1.1 * sampling + 0.01 * total:  # sampling overlaps with learning
        rows = {
            "env runners": _shares({**acting, "waiting": total - busy}, total),
            "learner": _shares(
                {"learning": learning, "waiting": total - learning - evaluation}
                | {"evaluation": evaluation},
                total,
            ),
        }
        limit = max(acting, key=lambda name: acting[name])
        share = rows["env runners"][limit]
        if learning > _FULL * (total - evaluation):
            limit, share = "learning", rows["learner"]["learning"]
    else:
        used = max(sampling, busy) + learning + evaluation
        row = _shares(
            {
                **acting,
                "learning": learning,
                "evaluation": evaluation,
                "waiting": max(0.0, sampling - busy),
                "other": total - used,
            },
            max(total, used),
        )
        rows = {"iteration": row}
        limit = max(row, key=lambda name: row[name])
        share = row[limit]
    if share < _NONE_LIMITS or limit == "other":
        return Bottleneck(rows=rows, limit="", advice=f"No bottleneck: {_list(rows)}.")
    return Bottleneck(
        rows=rows, limit=limit, advice=_advice(limit, share, num_env_runners, num_envs)
    )


def summed(splits: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return the sums of the seconds of several iterations."""
    found: dict[str, float] = {}
    for split in splits:
        for name, value in split.items():
            found[name] = found.get(name, 0.0) + _number(value)
    return found


def _advice(limit: str, share: float, runners: int, envs: int) -> str:
    percent = f"{share:.0%}"
    if limit == "learning":
        return (
            f"The learner is the bottleneck ({percent} of the time): more env runners will not "
            "help. Use fewer epochs, larger minibatches, a smaller network, a GPU or more learners."
        )
    if limit == "environment":
        now = f"now {runners}" if runners else "now 0: they run in the algorithm's process"
        return (
            f"The environments are the bottleneck ({percent} of the time): raise "
            f"`num_env_runners` ({now}), or vectorize environments with `gym_env_vectorize_mode`."
        )
    if limit == "inference":
        return (
            f"Inference is the bottleneck ({percent} of the time): raise "
            f"`num_envs_per_env_runner` (now {envs}), so that one forward pass serves more "
            "environments."
        )
    if limit == "connectors":
        return (
            f"Connectors, callbacks and bookkeeping are the bottleneck ({percent} of the time): "
            "callbacks in every step and connectors that build episodes cost most."
        )
    if limit == "evaluation":
        return (
            f"Evaluation takes {percent} of the time: raise `evaluation_interval`, or evaluate in "
            "`evaluation_num_env_runners` processes."
        )
    return (
        f"The algorithm waits for its env runners ({percent} of the time) until the slowest "
        "is done. Use at most one runner per CPU, and more environments in each."
    )


def _shares(seconds: Mapping[str, float], total: float) -> dict[str, float]:
    return {name: min(1.0, max(0.0, seconds.get(name, 0.0) / total)) for name in PARTS}


def _list(rows: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(
        f"{PARTS[name]} {share:.0%}"
        for row in rows.values()
        for name, share in row.items()
        if share >= 0.1
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return max(0.0, float(value)) if math.isfinite(value) else 0.0
