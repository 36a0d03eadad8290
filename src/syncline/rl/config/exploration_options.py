"""The option `exploration_config` from older releases: types, checks, and replacements."""

from __future__ import annotations

from syncline.rl.value_types import Options
from syncline.suggestions import did_you_mean

SUPPORTED = (
    "StochasticSampling",
    "EpsilonGreedy",
    "PerWorkerEpsilonGreedy",
    "GaussianNoise",
    "PerWorkerGaussianNoise",
    "OrnsteinUhlenbeckNoise",
    "PerWorkerOrnsteinUhlenbeckNoise",
    "SoftQ",
    "Random",
)
WITHOUT_COUNTERPART = {
    "ParameterNoise": "DQN has noisy layers: `training(noisy=True)`.",
    "Curiosity": (
        "Write a learner connector that adds intrinsic rewards, such as to `Columns.REWARDS`."
    ),
    "RE3": "Write a learner connector that adds intrinsic rewards.",
    "RND": "Write a learner connector that adds intrinsic rewards.",
    "SlateEpsilonGreedy": "Write a module with its own `_forward_exploration`.",
    "SlateSoftQ": "Write a module with its own `_forward_exploration`.",
    "ThompsonSampling": "Write a module with its own `_forward_exploration`.",
    "UpperConfidenceBound": "Write a module with its own `_forward_exploration`.",
}
"""Types that are not supported, with their replacements."""


def exploration_type(config: Options) -> str:
    """Return the type of an exploration without its module path and "PerWorker"."""
    kind = config.get("type") or "StochasticSampling"
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return name.rpartition(".")[2].removeprefix("PerWorker")


def check_exploration(config: Options, has_values: bool) -> None:
    """Check the type of an exploration.

    Args:
        config: `exploration_config`.
        has_values: The algorithm chooses actions by Q-values.

    Raises:
        ValueError: The type is unknown, not supported, or does not fit the algorithm.
    """
    kind = exploration_type(config)
    if kind in WITHOUT_COUNTERPART:
        raise ValueError(
            f"`exploration_config={{'type': {kind!r}}}` does not exist in syncline. "
            f"{WITHOUT_COUNTERPART[kind]}"
        )
    if kind not in SUPPORTED:
        raise ValueError(
            f"`exploration_config={{'type': {kind!r}}}` is unknown.{did_you_mean(kind, SUPPORTED)} "
            f"Use one of {', '.join(SUPPORTED)}."
        )
    if kind in ("EpsilonGreedy", "SoftQ") and not has_values:
        raise ValueError(
            f"`exploration_config={{'type': {kind!r}}}` needs action values, which this algorithm "
            "does not have: use DQN, or remove the option."
        )


def epsilon_schedule(config: Options) -> list[list[float]] | None:
    """Return the epsilon schedule of an exploration, or None."""
    if exploration_type(config) != "EpsilonGreedy" or len(config) < 2:
        return None
    first = float(config.get("initial_epsilon", 1.0))
    last = float(config.get("final_epsilon", 0.05))
    begin = int(config.get("warmup_timesteps", 0))
    end = begin + max(int(config.get("epsilon_timesteps", 100_000)), 1)
    schedule = [[0, first], [begin, first]] if begin else [[0, first]]
    return [*schedule, [end, last]]


def softmax_temperature(config: Options) -> float | None:
    """Return the temperature of `SoftQ`; None for other explorations."""
    if exploration_type(config) != "SoftQ":
        return None
    return float(config.get("temperature", 1.0))
