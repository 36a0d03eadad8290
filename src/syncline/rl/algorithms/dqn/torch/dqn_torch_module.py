"""The Q-network of DQN (optionally dueling, noisy, distributional), its target, and acting."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree
from syncline.rl.config.schedule import Schedule
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from syncline.rl.modules.numpy_acting import NumpyNetwork
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.modules.torch.heads import MLPHeadConfig
from syncline.rl.modules.torch.policy_weights import numpy_network
from syncline.rl.modules.torch.torch_acting import seeded, to_tensor
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Batch, Options, Tree

QF_PREDS = "qf_preds"
QF_NEXT_PREDS = "qf_next_preds"
QF_TARGET_NEXT_PREDS = "qf_target_next_preds"
QF_LOGITS = "qf_logits"
QF_TARGET_NEXT_PROBS = "qf_target_next_probs"
ENCODER_OUT = "encoder_out"


class QNetwork(nn.Module):
    """Encoder and heads: from observations to action values.

    Args:
        catalog: Builds the encoder.
        config: Options of the network.
        num_actions: A.
    """

    atoms: torch.Tensor

    def __init__(self, catalog: Catalog, config: Options, num_actions: int) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.num_atoms = int(config.get("num_atoms", 1))
        self.encoder = catalog.build_encoder(framework="torch")
        width = int(catalog.latent_dims[0])

        def head(outputs: int) -> nn.Module:
            built: nn.Module = MLPHeadConfig(
                input_dims=[width],
                hidden_layer_dims=config.get("head_fcnet_hiddens") or [],
                hidden_layer_activation=config.get("head_fcnet_activation", "relu"),
                output_layer_dim=outputs,
            ).build()
            if config.get("noisy"):
                make_noisy(built, float(config.get("sigma0", 0.5)))
            return built

        self.advantages = head(num_actions * self.num_atoms)
        self.values = head(self.num_atoms) if config.get("dueling", True) else None
        atoms = torch.linspace(
            config.get("v_min", -10.0), config.get("v_max", 10.0), self.num_atoms
        )
        self.register_buffer("atoms", atoms if self.num_atoms > 1 else torch.zeros(1))

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return `qf_preds` [B, A]; with atoms also `qf_logits` and `qf_probs` [B, A, atoms]."""
        embeddings = self.encoder(batch)[ENCODER_OUT]
        outputs = self.advantages(embeddings)
        outputs = outputs.view(*outputs.shape[:-1], self.num_actions, self.num_atoms)
        if self.values is not None:
            values = self.values(embeddings).unsqueeze(-2)
            outputs = values + outputs - outputs.mean(-2, keepdim=True)
        if self.num_atoms == 1:
            return {QF_PREDS: outputs.squeeze(-1)}
        probabilities = torch.softmax(outputs, -1)
        return {
            QF_PREDS: (probabilities * self.atoms).sum(-1),
            QF_LOGITS: outputs,
            "qf_probs": probabilities,
            "atoms": self.atoms,
        }


class NoisyLinear(nn.Linear):
    """A linear layer with factorized Gaussian noise (Fortunato et al. 2018,
    https://arxiv.org/abs/1706.10295). Evaluation mode disables the noise.
    """

    def __init__(self, layer: nn.Linear, sigma0: float) -> None:
        super().__init__(layer.in_features, layer.out_features)
        scale = sigma0 / layer.in_features**0.5
        self.weight_sigma = nn.Parameter(torch.full_like(self.weight, scale))
        self.bias_sigma = nn.Parameter(torch.full_like(self.bias, scale))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, with new noise for the whole batch."""
        if not self.training:
            return super().forward(input)
        into = _scaled(torch.randn(self.in_features, device=input.device))
        out = _scaled(torch.randn(self.out_features, device=input.device))
        weight = self.weight + self.weight_sigma * torch.outer(out, into)
        return functional.linear(input, weight, self.bias + self.bias_sigma * out)


def make_noisy(module: nn.Module, sigma0: float) -> None:
    """Replace the linear layers of a module with noisy ones."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, NoisyLinear(child, sigma0))
        else:
            make_noisy(child, sigma0)


def _scaled(noise: torch.Tensor) -> torch.Tensor:
    return noise.sign() * noise.abs().sqrt()


class DefaultDQNTorchRLModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """A Q-network and its target."""

    def setup(self) -> None:
        """Create the online network."""
        if not hasattr(self.action_space, "n"):
            raise ValueError(
                f"DQN needs a Discrete action space, not {self.action_space}. Use SAC or TD3 for "
                "continuous actions."
            )
        self.online = QNetwork(self.catalog, self.model_config, int(self.action_space.n))
        if not self.inference_only:
            self.make_target_networks()

    def get_non_inference_attributes(self) -> list[str]:
        """Return the target network."""
        return ["target"]

    def make_target_networks(self) -> None:
        """Create the target network, with the weights of the online one."""
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return online and target network."""
        return [(self.online, self.target)]

    def forward_target(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the outputs of the target network."""
        found: dict[str, torch.Tensor] = self.target(batch)
        return found

    def compute_q_values(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the outputs of the online network."""
        found: dict[str, torch.Tensor] = self.online(batch)
        return found

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        values = self.compute_q_values(batch)[QF_PREDS]
        return {Columns.ACTIONS: values.argmax(-1), Columns.ACTION_DIST_INPUTS: values}

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        out: Batch = dict(self.compute_q_values(batch))
        following = {Columns.OBS: batch[Columns.NEXT_OBS]}
        with torch.no_grad():
            target = self.forward_target(following)
            out[QF_TARGET_NEXT_PREDS] = target[QF_PREDS]
            if "qf_probs" in target:
                out[QF_TARGET_NEXT_PROBS] = target["qf_probs"]
            if self.model_config.get("double_q", True):
                out[QF_NEXT_PREDS] = self.compute_q_values(following)[QF_PREDS]
        return out

    def acting_policy(self) -> ActingPolicy:
        """Return the epsilon-greedy acting policy."""
        epsilon = 0.0 if self.model_config.get("noisy") else self.model_config.get("epsilon", 0.0)
        return EpsilonGreedyActing(self, Schedule(epsilon, "epsilon"))


class EpsilonGreedyActing:
    """Takes a random action with probability epsilon, otherwise the best one. If the module has a
    `softmax_temperature`, samples actions in proportion to exp(Q / temperature).

    The last noise value of a row seeds the weight noise of noisy layers. Small networks act with
    NumPy; the state value of a dueling network does not change the best action.
    """

    noise_size = 3
    noise_kind: Literal["uniform", "normal"] = "uniform"

    def __init__(self, module: DefaultDQNTorchRLModule, epsilon: Schedule) -> None:
        self._module = module
        self._is_noisy = bool(module.model_config.get("noisy"))
        self._temperature = float(module.model_config.get("softmax_temperature") or 0.0)
        self._schedule = epsilon
        self.epsilon = epsilon.value(0)
        self._network: NumpyNetwork | None = None
        if type(module) is DefaultDQNTorchRLModule and module.online.num_atoms == 1:
            self._network = numpy_network(module.online.encoder, module.online.advantages)

    def set_step(self, step: int) -> None:
        """Set epsilon according to the number of sampled environment steps."""
        self.epsilon = self._schedule.value(step)

    def act(
        self, obs: Tree, noise: np.ndarray, explore: bool, state: Tree = None
    ) -> tuple[Batch, Tree]:
        """Return actions [N]."""
        if self._network is not None:
            values = self._network(obs)
        else:
            values = self._values(obs, noise, explore)
        actions = values.argmax(1)
        if explore and self._temperature:
            scaled = np.exp((values - values.max(1, keepdims=True)) / self._temperature)
            cumulated = np.cumsum(scaled / scaled.sum(1, keepdims=True), 1)
            drawn = (noise[:, :1] > cumulated).sum(1)
            actions = np.minimum(drawn, values.shape[1] - 1).astype(actions.dtype)
        elif explore and self.epsilon:
            chosen = (noise[:, 1] * self._module.online.num_actions).astype(actions.dtype)
            actions = np.where(noise[:, 0] < self.epsilon, chosen, actions)
        return {Columns.ACTIONS: actions}, None

    def _values(self, obs: Tree, noise: np.ndarray, explore: bool) -> np.ndarray:
        module = self._module
        if self._is_noisy:
            module.train(explore)  # noisy layers draw noise in training mode only
        device = next(module.parameters()).device
        batch = {Columns.OBS: map_tree(lambda leaf: to_tensor(leaf, device), obs)}
        draws = seeded(device, noise) if self._is_noisy and explore else nullcontext()
        with torch.inference_mode(), draws:
            values: np.ndarray = module.compute_q_values(batch)[QF_PREDS].cpu().numpy()
        return values
