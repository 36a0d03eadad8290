"""`DefaultPPOTorchRLModule`: the default module of algorithms with a policy and a value function.

A `PPOCatalog` builds encoder and heads. Acting runs only the policy, and a separate value network
if it has its own memory, because its state must be updated.
"""

from __future__ import annotations

from syncline.rl.columns.names import Columns
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.apis import InferenceOnlyAPI, ValueFunctionAPI
from syncline.rl.modules.numpy_acting import NumpyActing
from syncline.rl.modules.rl_module import Batch, RLModule
from syncline.rl.modules.torch.catalog import PPOCatalog
from syncline.rl.modules.torch.encoders import TorchActorCriticEncoder
from syncline.rl.modules.torch.models import ACTOR, CRITIC, ENCODER_OUT
from syncline.rl.modules.torch.policy_weights import numpy_policy
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Tree


class DefaultPPORLModule(RLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """Parts of the default module: `encoder`, `pi` and `vf`."""

    def setup(self) -> None:
        """Build the parts from the catalog."""
        config = self.catalog.actor_critic_encoder_config
        if config.is_stateful and not config.shared:
            self.inference_only = False  # acting updates the critic's state
        config.inference_only = self.inference_only
        self.encoder = self.catalog.build_actor_critic_encoder(framework=self.framework)
        self.pi = self.catalog.build_pi_head(framework=self.framework)
        self.vf = self.catalog.build_vf_head(framework=self.framework)

    def get_initial_state(self) -> Tree:
        """Return the encoder's state; empty without memory."""
        if hasattr(self.encoder, "get_initial_state"):
            return self.encoder.get_initial_state()
        return {}

    def get_non_inference_attributes(self) -> list[str]:
        """Return the parts of the value function."""
        shared = self.catalog.actor_critic_encoder_config.shared
        stateful = self.catalog.actor_critic_encoder_config.is_stateful
        return ["vf"] if shared or stateful else ["vf", "encoder.critic_encoder"]


class DefaultPPOTorchRLModule(TorchRLModule, DefaultPPORLModule):
    """The default module in torch."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs["catalog_class"] = kwargs.get("catalog_class") or PPOCatalog
        super().__init__(*args, **kwargs)

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        if isinstance(self.encoder, TorchActorCriticEncoder):
            encoded = self.encoder.encode_actor(batch)
            latent = encoded[ENCODER_OUT]
        else:  # a custom encoder of a custom catalog
            encoded = self.encoder(batch)
            latent = encoded[ENCODER_OUT][ACTOR]
        output = {Columns.ACTION_DIST_INPUTS: self.pi(latent)}
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return output

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        encoded = self.encoder(batch)
        output = {
            Columns.ACTION_DIST_INPUTS: self.pi(encoded[ENCODER_OUT][ACTOR]),
            Columns.EMBEDDINGS: encoded[ENCODER_OUT][CRITIC],
        }
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return output

    def compute_values(self, batch: Batch, embeddings: Tree = None) -> Tree:
        """Return the values of the observations, [B] or [S, L]."""
        if embeddings is None:
            if isinstance(self.encoder, TorchActorCriticEncoder):
                embeddings = self.encoder.encode_critic(batch)
            else:
                embeddings = self.encoder(batch)[ENCODER_OUT][CRITIC]
        return self.vf(embeddings).squeeze(-1)

    def acting_policy(self) -> ActingPolicy:
        """Return acting with NumPy if the policy is fully connected, else with torch."""
        policy: NumpyActing | None = numpy_policy(self)
        return policy or super().acting_policy()
