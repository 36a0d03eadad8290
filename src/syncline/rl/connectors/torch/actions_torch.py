"""`GetActions`: the default connector that samples actions from the module's distributions."""

from __future__ import annotations

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.connector import Batch
from syncline.rl.connectors.to_module.items import DefaultConnector
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import ModuleType


class GetActions(DefaultConnector):
    """Adds actions and their log-probabilities for modules that return distribution inputs."""

    def __call__(
        self, *, rl_module: ModuleType, batch: Batch, explore: bool | None = None, **kwargs: object
    ) -> Batch:
        """Add the columns, with several modules to the columns of each."""
        if not hasattr(rl_module, "rl_module_specs"):
            self._add(rl_module, batch, explore)
            return batch
        for module_id, columns in batch.items():
            if module_id in rl_module:
                self._add(rl_module[module_id], columns, explore)
        return batch

    def _add(self, module: RLModule, columns: Batch, explore: bool | None) -> None:
        if Columns.ACTIONS in columns or Columns.ACTION_DIST_INPUTS not in columns:
            return
        if explore:
            cls = module.get_exploration_action_dist_cls()
        else:
            cls = module.get_inference_action_dist_cls()
        distribution = cls.from_logits(columns[Columns.ACTION_DIST_INPUTS])
        if not explore:
            distribution = distribution.to_deterministic()
        columns[Columns.ACTIONS] = distribution.sample()
        if explore:
            columns[Columns.ACTION_LOGP] = distribution.logp(columns[Columns.ACTIONS])
