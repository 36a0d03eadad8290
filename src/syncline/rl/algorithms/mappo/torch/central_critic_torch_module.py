"""`CentralCriticTorchRLModule`: a policy on the agent's observation, a critic on the state."""

from __future__ import annotations

import gymnasium as gym
import torch

from syncline.rl.algorithms.mappo.central_state import ACTION_MASK, OBS, STATE
from syncline.rl.columns.names import Columns
from syncline.rl.modules.apis import InferenceOnlyAPI, ValueFunctionAPI
from syncline.rl.modules.rl_module import Batch
from syncline.rl.modules.torch.catalog import PPOCatalog
from syncline.rl.modules.torch.models import ENCODER_OUT
from syncline.rl.modules.torch.policy_only import BCCatalog
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Tree


class CentralCriticTorchRLModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """Actor on `obs["obs"]`, critic on `obs["state"]`; `obs["action_mask"]` excludes actions.

    An optional memory belongs to the actor; the critic sees only the state.
    """

    def setup(self) -> None:
        """Build actor and critic."""
        space = self.observation_space
        if not isinstance(space, gym.spaces.Dict) or not {OBS, STATE} <= set(space.spaces):
            raise ValueError(
                f"MAPPO needs observations with the keys 'obs' and 'state', not {space}. Leave "
                "`add_central_state=True`, or return such observations from the environment."
            )
        config = self.model_config
        actor = BCCatalog(space[OBS], self.action_space, config)
        self.action_dist_cls = actor.get_action_dist_cls()
        self.encoder = actor.build_encoder()
        self.pi = actor.build_pi_head()
        self.has_mask = ACTION_MASK in space.spaces
        if self.has_mask and not isinstance(self.action_space, gym.spaces.Discrete):
            raise ValueError(
                f"'action_mask' in observations needs Discrete actions, not {self.action_space}."
            )
        without = {"use_lstm": False, "use_gru": False, "use_attention": False}
        critic = PPOCatalog(space[STATE], self.action_space, {**config, **without})
        critic.actor_critic_encoder_config.shared = True
        self.critic_encoder = critic.actor_critic_encoder_config.base_encoder_config.build("torch")
        self.vf = critic.build_vf_head()

    def get_non_inference_attributes(self) -> list[str]:
        """Return the critic."""
        return ["critic_encoder", "vf"]

    def get_initial_state(self) -> Tree:
        """Return the actor's state; empty without memory."""
        if hasattr(self.encoder, "get_initial_state"):
            return self.encoder.get_initial_state()
        return {}

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        obs = batch[Columns.OBS]
        encoded = self.encoder({**batch, Columns.OBS: obs[OBS]})
        logits = self.pi(encoded[ENCODER_OUT])
        if self.has_mask:
            lowest = torch.finfo(logits.dtype).min
            logits = logits.masked_fill(obs[ACTION_MASK] <= 0, lowest)
        output = {Columns.ACTION_DIST_INPUTS: logits}
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return output

    def compute_values(self, batch: Batch, embeddings: Tree = None) -> Tree:
        """Return the values of the states, [B] or [S, L]."""
        encoded = self.critic_encoder({Columns.OBS: batch[Columns.OBS][STATE]})
        return self.vf(encoded[ENCODER_OUT]).squeeze(-1)
