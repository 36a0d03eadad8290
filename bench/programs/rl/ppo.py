"""PPO on CartPole or Pendulum: `LIBRARY-TASK`, of syncline, ray, sb3, single and
cartpole, pendulum, solve.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable
from typing import Any

import torch

from bench.programs import common
from bench.programs.rl.settings import SETTINGS, Settings, measured_steps, solve, speed

Iterate = Callable[[], tuple[int, float]]


def rllib_config(config: Any, settings: Settings, model_config: Any, *, runners: int = 0) -> Any:
    """Set the options of a `PPOConfig` of syncline or of RLlib."""
    return (
        config.environment(settings.env)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=settings.num_envs)
        .training(
            lr=settings.learning_rate,
            gamma=settings.gamma,
            lambda_=settings.gae_lambda,
            clip_param=settings.clip,
            vf_clip_param=1e6,
            vf_loss_coeff=0.25,
            use_kl_loss=False,
            grad_clip=0.5,
            train_batch_size_per_learner=settings.batch * max(runners, 1),
            minibatch_size=settings.minibatch,
            num_epochs=settings.epochs,
        )
        .rl_module(
            model_config=model_config(
                fcnet_hiddens=list(settings.hidden), fcnet_activation="tanh", vf_share_layers=False
            )
        )
        .debugging(seed=SEED)
    )


def of_algorithm(algorithm: Any) -> Iterate:
    """Return the iteration of an `Algorithm`."""
    steps = 0

    def iterate() -> tuple[int, float]:
        nonlocal steps
        result = algorithm.train()
        before, steps = steps, int(result["num_env_steps_sampled_lifetime"])
        return steps - before, float(result["env_runners"].get("episode_return_mean", 0.0))

    return iterate


def syncline(settings: Settings) -> Iterate:
    """Train with syncline."""
    from syncline.rllib.algorithms.ppo import PPOConfig
    from syncline.rllib.core.rl_module.default_model_config import DefaultModelConfig

    return of_algorithm(rllib_config(PPOConfig(), settings, DefaultModelConfig).build_algo())


def ray(settings: Settings) -> Iterate:
    """Train with RLlib, which needs its cluster even for a local runner."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    return of_algorithm(rllib_config(PPOConfig(), settings, DefaultModelConfig).build_algo())


def sb3(settings: Settings) -> Iterate:
    """Train with Stable-Baselines3."""
    import numpy as np
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO(
        "MlpPolicy",
        make_vec_env(settings.env, n_envs=settings.num_envs, seed=SEED),
        n_steps=settings.steps,
        batch_size=settings.minibatch,
        n_epochs=settings.epochs,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.clip,
        learning_rate=settings.learning_rate,
        vf_coef=0.25,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": list(settings.hidden)},
        device="cpu",
        seed=SEED,
    )
    first = True

    def iterate() -> tuple[int, float]:
        nonlocal first
        model.learn(settings.batch, reset_num_timesteps=first)
        first = False
        returns = [each["r"] for each in model.ep_info_buffer or ()]
        return settings.batch, float(np.mean(returns)) if returns else 0.0

    return iterate


def single(settings: Settings) -> Iterate:
    """Train with plain torch."""
    from bench.programs.rl.single_file import trainer

    return trainer(settings, SEED)


LIBRARIES = {"syncline": syncline, "ray": ray, "sb3": sb3, "single": single}
SEED = 1

if __name__ == "__main__":
    options = common.arguments()
    library, task = options.library.split("-")
    torch.set_num_threads(1)
    iterate = LIBRARIES[library](SETTINGS[task])
    if task == "solve":
        values = solve(iterate)
    else:
        values = speed(lambda: iterate()[0], measured_steps(library))
    print(f"user: {library} {task}: {values}", flush=True)
    common.write(options.out, values)
    os._exit(0)  # leaving Ray takes seconds
