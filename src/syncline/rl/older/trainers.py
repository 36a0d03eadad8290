"""Trainers from older releases: names, default dictionaries, and classes from functions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.dqn import DQN
from syncline.rl.algorithms.ppo import PPO
from syncline.rl.algorithms.sac import SAC
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.older import OLDER_NAMES, RENAMED
from syncline.rl.older.model_config import MODEL_DEFAULTS
from syncline.rl.value_types import Options
from syncline.tune.registry import get_trainable_cls

_PRESENT = {RENAMED[name]: name for name in sorted(OLDER_NAMES, reverse=True)}
"""Older names by current attributes; the alphabetically first if there are several."""
_PREFERRED = {
    "num_env_runners": "num_workers",
    "num_envs_per_env_runner": "num_envs_per_worker",
    "num_cpus_per_env_runner": "num_cpus_per_worker",
    "num_gpus_per_env_runner": "num_gpus_per_worker",
    "num_cpus_for_main_process": "num_cpus_for_driver",
    "evaluation_num_env_runners": "evaluation_num_workers",
}


def default_config(algorithm: type[Algorithm]) -> Options:
    """Return the options of an algorithm as a dictionary with names from older releases."""
    given = algorithm.get_default_config().to_dict()
    made: Options = {}
    for name, value in given.items():
        if name.startswith(("_", "callbacks_on_")):
            continue
        older = _PREFERRED.get(name) or _PRESENT.get(name) or name
        made[older] = value
    made["model"] = {**MODEL_DEFAULTS, "vf_share_layers": False, **(given.get("model") or {})}
    made["multiagent"] = {
        name: made.pop(name) for name in ("policies", "policy_mapping_fn", "policies_to_train")
    }
    return made


def with_common_config(extra_config: Mapping[str, object]) -> Options:
    """Return the options of all algorithms, updated with the given ones; merge dictionaries."""
    return merged(COMMON_CONFIG, extra_config)


def merged(one: Mapping[str, object], other: Mapping[str, object]) -> Options:
    """Return a copy of `one` updated with `other`; nested dictionaries are merged."""
    made = copy.deepcopy(dict(one))
    for name, value in other.items():
        before = made.get(name)
        if isinstance(before, dict) and isinstance(value, Mapping):
            made[name] = {**before, **value}
        else:
            made[name] = value
    return made


def get_agent_class(alg: str) -> type[Algorithm]:
    """Return the class of an algorithm by name, such as "PPO".

    Raises:
        TuneError: No algorithm has this name; the message suggests the nearest one.
    """
    found: Any = get_trainable_cls(alg.removeprefix("contrib/"))
    return found  # type: ignore[no-any-return]


def build_trainer(
    *,
    name: str,
    default_config: Mapping[str, object] | None = None,
    default_policy: object = None,
    validate_config: Callable[[Any], None] | None = None,
    get_policy_class: object = None,
    before_init: Callable[[Any], None] | None = None,
    after_init: Callable[[Any], None] | None = None,
    mixins: Any = None,
    execution_plan: object = None,
    **_: object,
) -> type[Algorithm]:
    """Return a trainer class: PPO with different defaults and hooks around its construction.

    Args:
        name: Name of the class.
        default_config: Options as a dictionary with names from older releases.
        default_policy: Must be None: losses belong to learners.
        validate_config: Called with the configuration.
        get_policy_class: Must be None, like `default_policy`.
        before_init: Called with the trainer before it is built.
        after_init: Called with the trainer after it is built.
        mixins: Additional base classes.
        execution_plan: Must be None: training steps are methods.

    Raises:
        ValueError: A policy or an execution plan was given.
    """
    for given, remedy in (
        (
            "default_policy" if default_policy or get_policy_class else "",
            "Derive a learner from the algorithm's, override `compute_loss_for_module`, and pass "
            "`config.learners(learner_class=…)`.",
        ),
        (
            "execution_plan" if execution_plan else "",
            "Derive a class from Algorithm and override `training_step`.",
        ),
    ):
        if given:
            raise ValueError(
                f"build_trainer(name={name!r}, {given}=…) is not supported: policies and "
                f"execution plans of older releases were removed. {remedy}"
            )

    def get_default_config(cls: type[Algorithm]) -> AlgorithmConfig:
        made = PPO.get_default_config()
        made.algo_class = cls
        return made.update_from_dict(default_config or {})

    def setup(self: Algorithm, config: Options) -> None:
        if before_init is not None:
            before_init(self)
        if validate_config is not None:
            validate_config(self._given)
        PPO.setup(self, config)
        if after_init is not None:
            after_init(self)

    bases = (*(mixins or ()), PPO)
    return type(
        name, bases, {"get_default_config": classmethod(get_default_config), "setup": setup}
    )


COMMON_CONFIG: Options = default_config(Algorithm)
"""Options of all algorithms under names from older releases."""
PPO_DEFAULT_CONFIG: Options = default_config(PPO)
"""Options of PPO under names from older releases."""
DQN_DEFAULT_CONFIG: Options = default_config(DQN)
"""Options of DQN under names from older releases."""
SAC_DEFAULT_CONFIG: Options = default_config(SAC)
"""Options of SAC under names from older releases."""
