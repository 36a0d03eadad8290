"""AlphaZero (Silver et al. 2017, https://arxiv.org/abs/1712.01815): self-play with tree search, and
a network that learns the policies of the searches and the outcomes of the games.

Supports turn-based games of several agents and environments with one agent. With ranked rewards
(Laterre et al. 2018, https://arxiv.org/abs/1807.01672) a single agent competes with its own recent
returns. Not included: reuse of trees for the next move, symmetries, stochastic transitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.alpha_zero.alpha_zero_env_runner import (
    MCTS_POLICIES,
    AlphaZeroEnvRunner,
)
from syncline.rl.algorithms.alpha_zero.ranked_rewards import RankedRewards
from syncline.rl.algorithms.alpha_zero.search import tree_policy
from syncline.rl.algorithms.alpha_zero.simulator import ONLY_PLAYER, Position
from syncline.rl.algorithms.alpha_zero.torch.alpha_zero_torch_learner import AlphaZeroTorchLearner
from syncline.rl.algorithms.alpha_zero.torch.alpha_zero_torch_module import AlphaZeroTorchRLModule
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.section import NotProvided
from syncline.rl.learners.group import fragments_of
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.runners.sample import Sample
from syncline.rl.value_types import OptionMapping, Options, Selection
from syncline.suggestions import did_you_mean

ConfigT = TypeVar("ConfigT", bound="AlphaZeroConfig")


class AlphaZeroConfig(AlgorithmConfig):
    """Options of AlphaZero."""

    mcts_config: Options = {
        "puct_coefficient": 1.0,
        "num_simulations": 30,
        "temperature": 1.5,
        "dirichlet_epsilon": 0.25,
        "dirichlet_noise": 0.03,
        "argmax_tree_policy": False,
        "add_dirichlet_noise": True,
    }
    ranked_rewards: Options = {
        "enable": True,
        "percentile": 75,
        "buffer_max_length": 1000,
        "initialize_buffer": True,
        "num_init_rewards": 100,
    }
    replay_buffer_config: Options = {"type": "EpisodeReplayBuffer", "capacity": 1000}
    num_steps_sampled_before_learning_starts: int = 1000
    vf_loss_coeff: float = 1.0
    store_buffer_in_checkpoints: bool = True

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or AlphaZero)
        self.lr = 5e-5
        self.gamma = 1.0
        self.train_batch_size = 4000
        self.minibatch_size = 128
        self.num_epochs = 30
        self.shuffle_batch_per_epoch = True
        self.batch_mode = "complete_episodes"
        self.rollout_fragment_length = 200
        self.num_envs_per_env_runner = 16
        self.evaluation(evaluation_config=AlgorithmConfig.overrides(explore=False))

    def training(
        self: ConfigT,
        *,
        mcts_config: Mapping[str, object] = NotProvided,
        ranked_rewards: Mapping[str, object] = NotProvided,
        replay_buffer_config: Mapping[str, object] = NotProvided,
        num_steps_sampled_before_learning_starts: int = NotProvided,
        vf_loss_coeff: float = NotProvided,
        store_buffer_in_checkpoints: bool = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            mcts_config: `num_simulations` per move; `puct_coefficient`; `temperature`, the
                exponent of the visits (1 / tau in the paper); `argmax_tree_policy` to play the most
                visited moves; noise at the root: `add_dirichlet_noise`, `dirichlet_epsilon` (its
                weight), `dirichlet_noise` (its concentration). Keys are merged into the defaults.
            ranked_rewards: For environments with one agent: `enable`, `percentile` of the last
                `buffer_max_length` returns above which an episode counts as a win.
            replay_buffer_config: `capacity` in games; keys are merged into the defaults.
            num_steps_sampled_before_learning_starts: Moves before the first update.
            vf_loss_coeff: Coefficient of the value loss.
            store_buffer_in_checkpoints: Save the buffer so that a restored run continues exactly.
            kwargs: Options of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        for name in ("mcts_config", "ranked_rewards", "replay_buffer_config"):
            if given[name] is not NotProvided:
                given[name] = {**getattr(self, name), **given[name]}
        return self._set(given)

    def update_from_dict(self: ConfigT, config_dict: OptionMapping) -> ConfigT:
        """Set options from a dictionary; nested dictionaries are merged."""
        for key in ("mcts_config", "ranked_rewards", "replay_buffer_config"):
            if isinstance(config_dict.get(key), Mapping):
                config_dict = {**config_dict, key: {**getattr(self, key), **config_dict[key]}}
        return super().update_from_dict(config_dict)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        known = vars(type(self)).get("mcts_config", AlphaZeroConfig.mcts_config)
        for key in self.mcts_config:
            if key not in known:
                raise ValueError(f"`mcts_config` has no option {key!r}.{did_you_mean(key, known)}")
        if self.mcts_config["num_simulations"] < 1:
            raise ValueError("`mcts_config['num_simulations']` must be at least 1.")
        if self.batch_mode != "complete_episodes":
            raise ValueError(
                "AlphaZero learns from the outcomes of games: "
                f"`batch_mode={self.batch_mode!r}` must be 'complete_episodes'."
            )
        if self.num_learners:
            raise ValueError(
                "AlphaZero trains in the algorithm's process, not on `num_learners="
                f"{self.num_learners}`: set it to 0."
            )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of a network that computes priors and values."""
        return RLModuleSpec(module_class=AlphaZeroTorchRLModule)

    def get_default_learner_class(self) -> type[AlphaZeroTorchLearner]:
        """Return AlphaZero's learner."""
        return AlphaZeroTorchLearner


class AlphaZero(Algorithm):
    """AlphaZero."""

    @classmethod
    def get_default_config(cls) -> AlphaZeroConfig:
        """Return the default options."""
        return AlphaZeroConfig()

    def _build(self, config: AlgorithmConfig) -> None:
        if not config.mcts_config["add_dirichlet_noise"]:
            config.mcts_config = {**config.mcts_config, "dirichlet_epsilon": 0.0}
        super()._build(config)
        self._episodes: deque[dict[str, Tree]] = deque(
            maxlen=self.config.replay_buffer_config["capacity"]
        )
        self._random = np.random.Generator(np.random.Philox(self.seed))
        given = self.config.ranked_rewards
        self._ranked = RankedRewards(given["percentile"], given["buffer_max_length"])
        self._player: AlphaZeroEnvRunner | None = None

    def env_runner_class(self, config: AlgorithmConfig) -> type:
        """Return the class of env runners."""
        return config.env_runner_cls or AlphaZeroEnvRunner

    # -- training

    def training_step(self) -> None:
        """Play games, store their moves, and train on moves of recent games."""
        config = self.config
        runners = max(config.num_env_runners, 1)
        with self.metrics.log_time(("timers", "env_runner_sampling_timer")):
            samples = self.env_runner_group.sample_complete(
                config.rollout_fragment_length * runners, threshold=self._threshold()
            )
        self.log_samples(samples)
        self._keep(samples)
        if self._steps_sampled < config.num_steps_sampled_before_learning_starts:
            return
        self.update(
            batch=self.learner_group.batch_of_rows({DEFAULT_MODULE_ID: self._draw()}),
            num_epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
        )
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)

    def _threshold(self) -> float | None:
        """Return the threshold of returns that count as a win; None without ranked rewards."""
        return self._ranked.threshold() if self._is_ranked else None

    @property
    def _is_ranked(self) -> bool:
        has_one_agent = not self.player.simulator.is_game
        return bool(self.config.ranked_rewards["enable"]) and has_one_agent

    def _keep(self, samples: Sequence[Sample]) -> None:
        """Store the moves and returns of finished games."""
        for sample in samples:
            self._ranked.add(episode.episode_return for episode in sample.episodes)
        for fragment in fragments_of(samples)[DEFAULT_MODULE_ID]:
            rows = fragment.rows(
                {
                    Columns.OBS: map_tree(lambda leaf: leaf[:-1], fragment.obs),
                    MCTS_POLICIES: fragment.columns[MCTS_POLICIES],
                    Columns.VALUE_TARGETS: fragment.columns[Columns.VALUE_TARGETS],
                }
            )
            begin = 0
            for end in fragment.final_at[:, 0] + 1:
                self._episodes.append(
                    map_tree(lambda leaf, piece=slice(begin, end): leaf[piece], rows)
                )
                begin = end

    def _draw(self) -> dict[str, Tree]:
        """Return `train_batch_size` moves of the stored games, or all if there are fewer."""
        rows = stack_trees(lambda parts: np.concatenate(list(parts)), list(self._episodes))
        count = len(rows[Columns.VALUE_TARGETS])
        size = min(self.config.train_batch_size_per_learner, count)
        places = np.sort(self._random.choice(count, size, replace=False))
        drawn: dict[str, Tree] = map_tree(lambda leaf: leaf[places], rows)
        # Values come first because their length is the number of rows for any observation space.
        return {Columns.VALUE_TARGETS: drawn.pop(Columns.VALUE_TARGETS), **drawn}

    # -- playing

    @property
    def player(self) -> AlphaZeroEnvRunner:
        """Return the local runner with the current weights."""
        if self._player is None:
            local = self.env_runner_group.local_env_runner
            if local is None:
                local = AlphaZeroEnvRunner(config=self.config)
                local.share_modules(self.learner_group.local_modules)
            self._player = local
        return self._player

    def search_policies(
        self,
        states: Sequence[object],
        observations: Sequence[object],
        players: Sequence[object] = (),
    ) -> np.ndarray:
        """Return the search policies [G, A] for positions, without noise.

        Args:
            states: `env.get_state()` of each position.
            observations: Observation of the player to move in each position.
            players: Player to move in each position; not needed with one agent.
        """
        simulator = self.player.simulator
        roots: list[Position] = [
            simulator.load(state, player, obs)
            for state, obs, player in zip(
                states, observations, players or [ONLY_PLAYER] * len(states), strict=True
            )
        ]
        visits = self.player.search(threshold=self._threshold()).run(roots)
        return tree_policy(visits, self.config.mcts_config["temperature"])

    # -- state

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        state["random"] = self._random.bit_generator.state
        state["ranked_rewards"] = self._ranked.get_state()
        if self.config.store_buffer_in_checkpoints:
            state["episodes"] = list(self._episodes)
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore a state."""
        super().set_state(state)
        if "random" in state:
            self._random.bit_generator.state = state["random"]
            self._ranked.set_state(state["ranked_rewards"])
        self._episodes.extend(state.get("episodes", []))
