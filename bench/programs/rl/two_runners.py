"""PPO on CartPole with two env runners, beside the same work in one process."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import dataclasses

import torch

from bench.programs import common
from bench.programs.rl.ppo import of_algorithm, rllib_config
from bench.programs.rl.settings import SETTINGS, measured_steps, speed


def main() -> None:
    """Measure one process, then two runners."""
    options = common.arguments()
    torch.set_num_threads(1)
    if options.library == "ray":
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    else:
        from syncline.rllib.algorithms.ppo import PPOConfig
        from syncline.rllib.core.rl_module.default_model_config import DefaultModelConfig

    values: common.Values = {}
    one = dataclasses.replace(SETTINGS["cartpole"], num_envs=16)
    for runners, settings in ((0, one), (2, SETTINGS["cartpole"])):
        config = rllib_config(PPOConfig(), settings, DefaultModelConfig, runners=runners)
        algorithm = config.build_algo()
        iterate = of_algorithm(algorithm)
        found = speed(lambda iterate=iterate: iterate()[0], measured_steps(options.library))
        values[f"per_s_{runners}"] = found["per_s"]
        algorithm.stop()
    values["speedup"] = values["per_s_2"] / values["per_s_0"]
    print(f"user: {values}", flush=True)
    common.write(options.out, values)
    os._exit(0)  # leaving Ray takes seconds


if __name__ == "__main__":
    main()
