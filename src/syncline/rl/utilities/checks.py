"""Comparisons in tests, and the arguments and runs of example scripts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from syncline import tune
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.columns.trees import Tree
from syncline.rl.utilities.arrays import convert_to_numpy
from syncline.rl.value_types import ModuleType, Options, Results


def check(
    x: Tree,
    y: Tree,
    decimals: int = 5,
    atol: float | None = None,
    rtol: float | None = None,
    false: bool = False,
) -> None:
    """Assert that two trees of numbers are close or, with `false`, that they are not.

    Raises:
        AssertionError: They are not (or are).
    """
    try:
        _compare(x, y, 10.0**-decimals if atol is None else atol, rtol or 0.0)
    except AssertionError:
        if not false:
            raise
    else:
        if false:
            raise AssertionError(f"{x} and {y} are close, but must not be.")


def _compare(x: Tree, y: Tree, atol: float, rtol: float) -> None:
    if isinstance(x, Mapping):
        assert set(x) == set(y), f"keys {sorted(map(str, x))} and {sorted(map(str, y))}"
        for key, value in x.items():
            _compare(value, y[key], atol, rtol)
    elif isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        assert len(x) == len(y), f"lengths {len(x)} and {len(y)}"
        for one, other in zip(x, y, strict=True):
            _compare(one, other, atol, rtol)
    elif isinstance(x, (str, bool, type(None))):
        assert x == y, f"{x!r} and {y!r}"
    else:
        one, other = (convert_to_numpy(each, reduce_type=False) for each in (x, y))
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def check_compute_single_action(algorithm: Algorithm, **_: object) -> None:
    """Assert that `compute_single_action` returns actions in the space, with and without
    exploration.
    """
    module: ModuleType = algorithm.get_module()
    space = algorithm.connectors.env_to_module.input_observation_space
    for explore in (True, False):
        state = algorithm.get_policy().get_initial_state() or None
        found = algorithm.compute_single_action(space.sample(), state, explore=explore)
        action = found[0] if state else found
        assert np.shape(action) == module.action_space.shape, f"{action}: {module.action_space}"


def add_rllib_example_script_args(
    parser: argparse.ArgumentParser | None = None,
    default_reward: float = 100.0,
    default_iters: int = 200,
    default_timesteps: int = 100_000,
) -> argparse.ArgumentParser:
    """Return a parser with the arguments of RLlib's example scripts."""
    parser = parser or argparse.ArgumentParser()
    for name, kind, default in (
        ("--algo", str, "PPO"),
        ("--env", str, None),
        ("--num-env-runners", int, None),
        ("--num-envs-per-env-runner", int, None),
        ("--num-agents", int, 0),
        ("--num-learners", int, None),
        ("--num-gpus-per-learner", float, None),
        ("--evaluation-interval", int, 0),
        ("--evaluation-duration", int, 10),
        ("--num-samples", int, 1),
        ("--stop-reward", float, default_reward),
        ("--stop-iters", int, default_iters),
        ("--stop-timesteps", int, default_timesteps),
        ("--checkpoint-freq", int, 0),
        ("--verbose", int, 1),
    ):
        parser.add_argument(name, type=kind, default=default)
    for name in (
        "--no-tune",
        "--as-test",
        "--as-release-test",
        "--checkpoint-at-end",
        "--local-mode",
    ):
        parser.add_argument(name, action="store_true")
    return parser


def run_rllib_example_script_experiment(
    base_config: object,
    args: argparse.Namespace | None = None,
    *,
    stop: Options | None = None,
    success_metric: Options | None = None,
    **_: object,
) -> Any:
    """Train with the arguments of an example script; return the results.

    Raises:
        ValueError: With `--as-test`, the success metric was not reached.
    """
    args = args or add_rllib_example_script_args().parse_args()
    metric = "env_runners/episode_return_mean"
    stop = stop or {
        metric: args.stop_reward,
        "num_env_steps_sampled_lifetime": args.stop_timesteps,
        "training_iteration": args.stop_iters,
    }
    config = _with_arguments(base_config, args)
    if args.no_tune:
        return _train_alone(config, stop)
    results = tune.Tuner(
        config.algo_class,
        param_space=config,
        run_config=tune.RunConfig(
            stop=stop,
            verbose=args.verbose,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=args.checkpoint_freq, checkpoint_at_end=args.checkpoint_at_end
            ),
        ),
        tune_config=tune.TuneConfig(num_samples=args.num_samples),
    ).fit()
    if args.as_test:
        for name, least in (success_metric or {metric: args.stop_reward}).items():
            best = max(_at(each.metrics or {}, name) for each in results)
            if best < least:
                raise ValueError(f"`{name}` is {best}, but the test requires {least}.")
    return results


def _with_arguments(base_config: Any, args: argparse.Namespace) -> Any:
    config = base_config.copy(copy_frozen=False)
    for name in ("num_env_runners", "num_envs_per_env_runner", "num_learners"):
        if getattr(args, name) is not None:
            setattr(config, name, getattr(args, name))
    if args.num_gpus_per_learner is not None:
        config.num_gpus_per_learner = args.num_gpus_per_learner
    if config.env is None and args.env is not None:
        config.environment(args.env)
    if args.evaluation_interval:
        config.evaluation(
            evaluation_interval=args.evaluation_interval,
            evaluation_duration=args.evaluation_duration,
        )
    return config


def _train_alone(config: Any, stop: Mapping[str, float]) -> Results:
    algo = config.build_algo()
    try:
        while True:
            result: Results = algo.train()
            if any(_at(result, name) >= least for name, least in stop.items()):
                return result
    finally:
        algo.stop()


def _at(result: Mapping[str, object], path: str) -> Any:
    if path in result:
        return result[path]
    found: object = result
    for key in path.split("/"):
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, (int, float)) else float("-inf")
