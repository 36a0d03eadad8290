"""Algorithms from older releases: aliases of current algorithms, and errors for the others.

`A3C`, `PG`, `SimpleQ`, `ApexDQN` and `DDPPO` run current algorithms with different options and warn
once. Other names raise `RetiredAlgorithmError`, which names a replacement.
"""

from __future__ import annotations

import warnings
from typing import Any

from syncline.rl.algorithms.a2c import A2C, A2CConfig
from syncline.rl.algorithms.dqn import DQN, DQNConfig
from syncline.rl.algorithms.ppo import PPO, PPOConfig
from syncline.tune.result import Config

_TO_LEARN_FROM_DATA = "IQL or CQL, which learn from recorded data"
_BANDIT = "DQN with `gamma=0`, whose network estimates the reward of each arm"

REPLACEMENTS = {
    "AlphaStar": "PPO with self-play: freeze copies by `algorithm.add_module` in a callback",
    "ApexDDPG": "TD3 with `num_env_runners`",
    "BanditLinTS": _BANDIT,
    "BanditLinUCB": _BANDIT,
    "CRR": _TO_LEARN_FROM_DATA,
    "DT": f"BC or MARWIL, which imitate recorded actions, or {_TO_LEARN_FROM_DATA}",
    "Dreamer": "DreamerV3",
    "LeelaChessZero": "AlphaZero, which plays any game of two players in turns",
    "MADDPG": "MAPPO, which also has a central critic, or QMIX for teams with discrete actions",
    "MAML": "PPO with `use_lstm=True`, which adapts to a task within an episode, and tasks set by "
    "`env_runner_group.foreach_env_runner` in a callback",
    "MBMPO": "MBPO, which also learns a model of the environment",
    "R2D2": "PPO or IMPALA with `use_lstm=True`; DQN has no memory",
    "RNNSAC": "PPO with `use_lstm=True`; SAC has no memory",
    "SlateQ": "DQN on single items, or PPO with a MultiDiscrete action space for slates",
}
"""Replacements by the name of the algorithm."""


class RetiredAlgorithmError(ImportError):
    """Raised for an algorithm from older releases that is not supported."""


class _RunsAsAnother:
    """Warns that an older name runs a current algorithm."""

    runs: str

    def setup(self, config: Config) -> None:
        """Warn, and create learners and runners."""
        warnings.warn(
            f"{type(self).__name__} is an algorithm from older releases; it runs {self.runs}.",
            stacklevel=2,
        )
        super().setup(config)  # type: ignore[misc]


class A3CConfig(A2CConfig):
    """Options of A3C."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or A3C)


class A3C(_RunsAsAnother, A2C):
    """A2C with several env runners, whose gradients form one step."""

    runs = "A2C with `num_env_runners`, whose gradients are synchronous"

    @classmethod
    def get_default_config(cls) -> A3CConfig:
        """Return the default options."""
        return A3CConfig()


class PGConfig(A2CConfig):
    """Options of PG."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or PG)
        self.lr = 4e-4
        self.grad_clip = None
        self.use_critic = False
        self.use_gae = False
        self.entropy_coeff = 0.0
        self.num_env_runners = 0
        self.batch_mode = "complete_episodes"
        self.min_time_s_per_iteration = None


class PG(_RunsAsAnother, A2C):
    """REINFORCE: A2C without a critic."""

    runs = "A2C with `use_critic=False`"

    @classmethod
    def get_default_config(cls) -> PGConfig:
        """Return the default options."""
        return PGConfig()


class SimpleQConfig(DQNConfig):
    """Options of SimpleQ."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or SimpleQ)
        self.double_q = False
        self.dueling = False
        self.replay_buffer_config = {"type": "EpisodeReplayBuffer", "capacity": 50_000}


class SimpleQ(_RunsAsAnother, DQN):
    """DQN as in 2015: neither double, dueling nor prioritized."""

    runs = "DQN with `double_q=False, dueling=False` and uniform replay"

    @classmethod
    def get_default_config(cls) -> SimpleQConfig:
        """Return the default options."""
        return SimpleQConfig()


class ApexDQNConfig(DQNConfig):
    """Options of APEX."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ApexDQN)
        self.n_step = 3
        self.num_env_runners = 4
        self.rollout_fragment_length = 50
        self.train_batch_size = 512
        self.training_intensity = 1
        self.target_network_update_freq = 500_000
        self.num_steps_sampled_before_learning_starts = 50_000
        self.replay_buffer_config = {**self.replay_buffer_config, "capacity": 2_000_000}
        self.min_sample_timesteps_per_iteration = 25_000


class ApexDQN(_RunsAsAnother, DQN):
    """DQN with prioritized replay and several env runners."""

    runs = "DQN with `num_env_runners` and one epsilon for all of them"

    @classmethod
    def get_default_config(cls) -> ApexDQNConfig:
        """Return the default options."""
        return ApexDQNConfig()


class DDPPOConfig(PPOConfig):
    """Options of DDPPO."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DDPPO)
        self.num_learners = 2
        self._train_batch_size_per_learner = 500
        self.minibatch_size = 50
        self.num_epochs = 10
        self.use_kl_loss = False


class DDPPO(_RunsAsAnother, PPO):
    """PPO with several learners."""

    runs = "PPO with `num_learners`, which average their gradients"

    @classmethod
    def get_default_config(cls) -> DDPPOConfig:
        """Return the default options."""
        return DDPPOConfig()


class RandomAgentConfig(PPOConfig):
    """Options of RandomAgent."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RandomAgent)
        self.num_env_runners = 0


class RandomAgent(PPO):
    """Samples random actions without learning; a baseline for returns."""

    @classmethod
    def get_default_config(cls) -> RandomAgentConfig:
        """Return the default options."""
        return RandomAgentConfig()

    def training_step(self) -> None:
        """Sample a batch with random actions."""
        self.sample_batch(self.config.total_train_batch_size, random_actions=True)


def __getattr__(name: str) -> Any:
    algorithm = name.removesuffix("Config").removesuffix("Trainer")
    if algorithm in REPLACEMENTS:
        raise RetiredAlgorithmError(
            f"{algorithm} is an algorithm from older releases that is not supported. Use "
            f"{REPLACEMENTS[algorithm]}."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
