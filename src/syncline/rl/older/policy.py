"""`Policy`: a module of an algorithm behind the policy interface of older releases.

Covered: acting, states, weights, checkpoints, one update on a batch, export. Observations pass the
algorithm's connectors; actions are returned by the module before they are unsquashed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from syncline.rl.algorithm.acting import Acting
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, leaves, map_tree, stack_trees
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.modules.torch.export import export_module
from syncline.rl.value_types import Batch, CheckedSpace, ModuleType


class Policy:
    """A view of one module. Not thread-safe.

    Args:
        acting: Computes actions with the module.
        config: Options of the algorithm for this module.
        learn: Updates the module on columns [B, …] and returns the metrics; None without learner.
    """

    def __init__(
        self, acting: Acting, config: Any, learn: Callable[[Mapping[str, Any]], Batch] | None = None
    ) -> None:
        self._acting = acting
        self.config = config
        self._learn = learn

    @property
    def model(self) -> ModuleType:
        """The module, or the `ModelV2` inside it."""
        return getattr(self._acting.module, "model_v2", self._acting.module)

    @property
    def observation_space(self) -> CheckedSpace:
        """Space of the module's observations."""
        return self._acting.module.observation_space

    @property
    def action_space(self) -> CheckedSpace:
        """Space of the actions."""
        return self._acting.module.action_space

    @property
    def dist_class(self) -> Any:
        """Class of the action distributions."""
        return self._acting.module.get_exploration_action_dist_cls()

    def is_recurrent(self) -> bool:
        """Return True if the module has a state."""
        return bool(self._acting.module.is_stateful())

    def num_state_tensors(self) -> int:
        """Return the number of arrays of a state."""
        return len(self.get_initial_state())

    def get_initial_state(self) -> list[np.ndarray]:
        """Return the arrays of the state at the beginning of an episode."""
        return leaves(self._acting.initial_state()) if self.is_recurrent() else []

    # -- acting

    def compute_single_action(
        self,
        obs: Tree = None,
        state: Sequence[object] | None = None,
        *,
        input_dict: Mapping[str, object] | None = None,
        explore: bool | None = None,
        **_: object,
    ) -> tuple[Tree, list[np.ndarray], Batch]:
        """Return an action, the arrays of the next state, and the other outputs."""
        if obs is None and input_dict is not None:
            obs = input_dict[Columns.OBS]
        actions, states, outputs = self._acting.act(
            [obs], [state] if state else None, explore=self._explore(explore), for_env=False
        )
        others = {name: map_tree(lambda leaf: leaf[0], each) for name, each in outputs.items()}
        return actions[0], leaves(states[0]) if states else [], others

    def compute_actions(
        self,
        obs_batch: object,
        state_batches: Sequence[Tree] | None = None,
        *_: object,
        explore: bool | None = None,
        **__: object,
    ) -> tuple[Tree, list[np.ndarray], Batch]:
        """Return actions [B, …], the arrays [B, …] of the next states, and the other outputs."""
        count = len(leaves(obs_batch)[0]) if not isinstance(obs_batch, list) else len(obs_batch)
        observations = (
            obs_batch
            if isinstance(obs_batch, list)
            else [map_tree(lambda leaf, n=n: leaf[n], obs_batch) for n in range(count)]
        )
        states = None
        if state_batches:
            states = [[part[n] for part in state_batches] for n in range(count)]
        actions, next_states, outputs = self._acting.act(
            observations, states, explore=self._explore(explore), for_env=False
        )
        stacked = leaves(stack_trees(np.stack, next_states)) if next_states else []
        return stack_trees(np.stack, actions), stacked, outputs

    def compute_actions_from_input_dict(
        self, input_dict: Mapping[str, object], explore: bool | None = None, **_: object
    ) -> tuple[Tree, list[np.ndarray], Batch]:
        """Same as `compute_actions`, with states in the entries `state_in_0` and so on."""
        states = [input_dict[name] for name in sorted(input_dict) if name.startswith("state_in_")]
        return self.compute_actions(input_dict[Columns.OBS], states or None, explore=explore)

    def _explore(self, explore: bool | None) -> bool:
        return bool(self.config.explore) if explore is None else explore

    # -- learning and weights

    def learn_on_batch(self, samples: Mapping[str, object]) -> Batch:
        """Update the module once on a batch of rows; return the metrics.

        Raises:
            NotImplementedError: The policy was loaded without its algorithm.
        """
        if self._learn is None:
            raise NotImplementedError(
                "This policy has no learner: it was loaded from a checkpoint. Restore the algorithm"
                " with `Algorithm.from_checkpoint(…)` and use `get_policy()`."
            )
        return self._learn(dict(samples))

    def get_weights(self) -> StateDict:
        """Return the weights as arrays by name."""
        weights: StateDict = self._acting.module.get_state()
        return weights

    def set_weights(self, weights: StateDict) -> None:
        """Set the weights."""
        self._acting.module.set_state(weights)

    def get_state(self) -> StateDict:
        """Return the weights under the key "weights"."""
        return {"weights": self.get_weights()}

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self.set_weights(state["weights"])

    # -- files

    def export_checkpoint(self, export_dir: str, **_: object) -> None:
        """Save the module; `Policy.from_checkpoint` loads it."""
        self._acting.module.save_to_path(export_dir)

    def export_model(self, export_dir: str, onnx: int | None = None) -> None:
        """Save the module for `RLModule.from_checkpoint`.

        With `onnx`, write `model.onnx` instead, which returns the module's own actions; see
        `modules.torch.export`.

        Args:
            export_dir: Directory.
            onnx: Any value except None selects ONNX; the operator version has no effect.
        """
        if onnx is None:
            self._acting.module.save_to_path(export_dir)
            return
        path = os.path.join(export_dir, "model.onnx")
        export_module(self._acting.module, path, "onnx", scale_actions=False)

    @staticmethod
    def from_checkpoint(
        checkpoint: Any, policy_ids: Sequence[str] | None = None
    ) -> Policy | dict[str, Policy]:
        """Load a policy from a module's checkpoint, or policies from an algorithm's.

        Loaded policies act without the algorithm's connectors.
        """
        path = os.fspath(getattr(checkpoint, "path", checkpoint))
        modules = os.path.join(path, "learner_group", "learner", "rl_module")
        if not os.path.isdir(modules):
            return _loaded(path)
        names = policy_ids or [
            name for name in sorted(os.listdir(modules)) if os.path.isdir(f"{modules}/{name}")
        ]
        return {name: _loaded(os.path.join(modules, name)) for name in names}


class _LoadedConfig(dict[str, Any]):
    """Options of a policy without an algorithm."""

    explore = True


def _loaded(path: str) -> Policy:
    module = RLModule.from_checkpoint(path)
    acting = Acting(module, {}, normalize_actions=True, clip_actions=False, seed=0)
    return Policy(acting, _LoadedConfig())
