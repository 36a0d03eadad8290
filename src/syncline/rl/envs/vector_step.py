"""The result of `step` of vector environments.

All vectors implement gymnasium's `VectorEnv`, with these differences for speed:

* `step` returns new arrays in every call, so that the caller may keep them.
* `infos` contains only `final_obs` and `final_info` (lists by environment; None where the episode
  continues), and `per_env`, the list of info dicts by environment. Empty entries are missing; see
  `infos_per_env`.
"""

from __future__ import annotations

import numpy as np

from syncline.rl.value_types import Arrays, Info

FINAL_OBS, FINAL_INFO, PER_ENV, RESET_ONLY = "final_obs", "final_info", "per_env", "reset_only"
"""Keys of `infos`. `reset_only` marks environments whose step ignored the action and only began an
episode; only native vectors with `AutoresetMode.NEXT_STEP` have it."""

VectorStep = tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, Info]
"""Observations, rewards, terminated, truncated, infos."""


def infos_per_env(infos: Info, num_envs: int) -> list[Info]:
    """Return the info dict of each environment, for `infos` of any vector."""
    if PER_ENV in infos:
        listed: list[Info] = infos[PER_ENV]
        return listed
    split: list[Info] = [{} for _ in range(num_envs)]
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if key.startswith("_") or key in (FINAL_OBS, FINAL_INFO, RESET_ONLY) or mask is None:
            continue
        for index in np.flatnonzero(mask):
            value = values[index] if not isinstance(values, dict) else None
            split[index][key] = infos_per_env(values, num_envs)[index] if value is None else value
    return split
