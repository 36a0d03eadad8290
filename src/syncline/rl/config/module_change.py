"""`ModuleChange`: the addition or removal of a module while an algorithm runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.older.policy_spec import with_spaces
from syncline.rl.value_types import OptionMapping, SpacePair
from syncline.suggestions import did_you_mean


@dataclass(frozen=True, kw_only=True)
class ModuleChange:
    """A change of the modules, applied by the algorithm, its learners and its runners."""

    module_id: str
    """Id of the module."""
    spec: RLModuleSpec | None
    """Its complete specification; None removes the module."""
    spaces: Mapping[str, SpacePair] = field(default_factory=dict)
    """Spaces of the other modules, some of which may have no agents after the change."""
    overrides: OptionMapping | None = None
    """Options of the algorithm for this module alone."""
    mapping_fn: Callable[..., str] | None = None
    """New `policy_mapping_fn`; None to keep the current one."""
    to_train: Collection[str] | Callable[..., bool] | None = None
    """New `policies_to_train`; None to keep the current ones."""
    in_learners: bool = True
    """Apply the change in the learners."""
    in_env_runners: bool = True
    """Apply the change in the runners that sample for training."""
    in_eval_env_runners: bool = True
    """Apply the change in the evaluation runners."""

    def check(self, config: AlgorithmConfig) -> None:
        """Raise an error if the change is impossible for the modules of a configuration.

        Raises:
            ValueError: The module to add exists already, or the one to remove is the only one.
            KeyError: The module to remove does not exist.
        """
        known = sorted(config.policies)
        if self.spec is not None and self.module_id in known:
            raise ValueError(
                f"The module {self.module_id!r} exists already. Use another id, or first call "
                f"`remove_module({self.module_id!r})`."
            )
        if self.spec is None and self.module_id not in known:
            raise KeyError(
                f"The module {self.module_id!r} does not exist and cannot be removed."
                f"{did_you_mean(self.module_id, known)} Modules: {', '.join(known)}."
            )
        if self.spec is None and len(known) == 1:
            raise ValueError(
                f"The module {self.module_id!r} is the only one and cannot be removed: first add "
                "another one."
            )

    def changed(self, config: AlgorithmConfig) -> AlgorithmConfig:
        """Return a frozen copy of a configuration with the change applied."""
        made = config.copy(copy_frozen=False)
        known = {
            module_id: with_spaces(declared, self.spaces.get(module_id))
            for module_id, declared in config.policies.items()
        }
        made.policies = {**known, self.module_id: self.spec}
        overrides = dict(config.algorithm_config_overrides_per_module)
        if self.overrides:
            overrides[self.module_id] = dict(self.overrides)
        if self.spec is None:
            del made.policies[self.module_id]
            overrides.pop(self.module_id, None)
        made.algorithm_config_overrides_per_module = overrides
        if self.mapping_fn is not None:
            made.policy_mapping_fn = self.mapping_fn
        train = config.policies_to_train if self.to_train is None else self.to_train
        if self.spec is None and train is not None and not callable(train):
            train = [module_id for module_id in train if module_id != self.module_id]
        made.policies_to_train = train
        if isinstance(config.evaluation_config, AlgorithmConfig):
            made.evaluation_config = self.changed(config.evaluation_config)
        made.freeze()
        return made
