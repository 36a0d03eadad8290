"""IMPALA with 8 env runners whose environments take 1 ms a step: does anybody wait needlessly?

Twice: with a learner that is faster than the environments, where they limit the speed, and with one
that makes 16 passes over each batch, where it is the limit and must never wait for samples.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import gymnasium as gym
import numpy as np
import torch

from bench.programs import common

RUNNERS = 8
STEP_S = 0.001
FRAGMENT = 64
BATCH = 512
MEASURED_S = 6.0
PASSES = 60


class SlowEnv(gym.Env):
    """Random observations, 1 ms a step, episodes of 200 steps."""

    observation_space = gym.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, config=None) -> None:
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        """Begin an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return self._obs(), {}

    def _obs(self):
        return self.np_random.uniform(-1, 1, 8).astype(np.float32)

    def step(self, action):
        """Sleep, as a simulator in another process would let this one do."""
        time.sleep(STEP_S)
        self._steps += 1
        return self._obs(), float(action == 1), False, self._steps >= 200, {}


def config(library: str, passes: int):
    """Return the configuration."""
    if library == "ray":
        from ray.rllib.algorithms.impala import IMPALAConfig
    else:
        from syncline.rllib.algorithms.impala import IMPALAConfig
    return (
        IMPALAConfig()
        .environment(SlowEnv)
        .env_runners(
            num_env_runners=RUNNERS, num_cpus_per_env_runner=0.1, rollout_fragment_length=FRAGMENT
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=BATCH, num_epochs=passes, lr=1e-4)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .reporting(min_time_s_per_iteration=1)
    )


def sampled(result) -> int:
    """Return the lifetime count of environment steps."""
    return int(result["num_env_steps_sampled_lifetime"])


def measure(library: str, passes: int) -> dict[str, float]:
    """Return steps per second, and the learner's share of waiting (of syncline)."""
    algorithm = config(library, passes).build_algo()
    for _ in range(3):
        result = algorithm.train()
    first, began = sampled(result), time.perf_counter()
    idle = busy = 0.0
    while time.perf_counter() - began < MEASURED_S:
        result = algorithm.train()
        idle += result["timers"].get("learner_idle_s", 0.0)
        busy += result["timers"].get("learner_busy_s", 0.0)
    seconds = time.perf_counter() - began
    algorithm.stop()
    values = {"per_s": (sampled(result) - first) / seconds}
    if library == "syncline":
        values["idle"] = idle / seconds
        values["busy"] = busy / seconds
    return values


def alone() -> float:
    """Return the steps per second of a runner that has the machine for itself."""
    algorithm = config("syncline", passes=1).env_runners(num_env_runners=0).build_algo()
    algorithm.env_runner.sample_steps(FRAGMENT)
    began = time.perf_counter()
    algorithm.env_runner.sample_steps(10 * FRAGMENT)
    rate = 10 * FRAGMENT / (time.perf_counter() - began)
    algorithm.stop()
    return rate


def main() -> None:
    """Measure both."""
    options = common.arguments()
    torch.set_num_threads(1)
    fast = measure(options.library, passes=1)
    values: common.Values = {"per_s": fast["per_s"]}
    if options.library == "syncline":
        values["of_possible"] = fast["per_s"] / (RUNNERS * alone())
        slow = measure(options.library, passes=PASSES)
        values["idle"], values["busy"] = slow["idle"], slow["busy"]
    print(f"user: {values}", flush=True)
    common.write(options.out, values)
    os._exit(0)  # leaving Ray takes seconds


if __name__ == "__main__":
    main()
