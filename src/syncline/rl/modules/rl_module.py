"""`RLModule`, `MultiRLModule` and their specifications.

The four classes refer to each other and therefore share this file. Covered: construction, forward
passes, states and checkpoints without a framework. Not covered: networks (`torch/`) and acting
(`acting`).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.modules.acting import ActingPolicy, ModuleActing
from syncline.rl.modules.default_model_config import DefaultModelConfig, model_config_dict
from syncline.rl.modules.distribution import Distribution
from syncline.rl.modules.module_dict import DEFAULT_MODULE_ID, ModuleDict, validate_module_id
from syncline.rl.value_types import Batch as Batch
from syncline.rl.value_types import CallArguments, CheckedSpace, ModuleType, Options, Tree
from syncline.rl.value_types import Space as Space
from syncline.suggestions import did_you_mean

ModelConfig = DefaultModelConfig | Mapping[str, Any]


class RLModule(Checkpointable):
    """A network, or another function, that maps observations to actions and training outputs.

    Subclasses create their parts in `setup` and override `_forward`, or the forward methods of
    single phases. Inputs and outputs are dicts with names from `Columns`. The constructor calls
    `setup` once.

    Args:
        observation_space: Space of the observations after the connectors.
        action_space: Space of the actions before they are unsquashed for the environment.
        inference_only: Omit the parts that only training needs.
        learner_only: Do not build this module on env runners.
        model_config: Settings; a dict for custom modules.
        catalog_class: Class of `self.catalog`, which builds the parts of default modules.
    """

    framework: str | None = None
    """Name of the framework of the tensors: "torch", or None for NumPy arrays."""
    action_dist_cls: type[Any] | None = None
    """Class of the action distributions; by default the catalog's. Subclasses may set it in the
    class or in `setup`."""
    STATE_FILE_NAME = "module_state"

    def __init__(
        self,
        config: object = None,
        *,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        inference_only: bool | None = None,
        learner_only: bool = False,
        model_config: ModelConfig | None = None,
        catalog_class: type[object] | None = None,
        **kwargs: object,
    ) -> None:
        if config is not None:
            raise TypeError(
                f"{type(self).__name__}({config!r}): modules take only keyword arguments. Pass "
                "observation_space=..., action_space=..., model_config=..."
            )
        self.observation_space: CheckedSpace = observation_space
        self.action_space: CheckedSpace = action_space
        self.inference_only = bool(inference_only)
        self.learner_only = bool(learner_only)
        self.model_config: Any = {} if model_config is None else model_config
        self.catalog: Any = None
        self._is_stateful: bool | None = None
        problem = self._make_catalog(catalog_class)
        try:
            self.setup()
        except AttributeError as error:
            # A custom module may not need the catalog, so a missing one only matters here.
            if problem is not None and "'NoneType' object has no attribute" in str(error):
                raise problem from error
            raise

    @property
    def config(self) -> SimpleNamespace:
        """The constructor arguments, for modules from older releases."""
        return SimpleNamespace(
            observation_space=self.observation_space,
            action_space=self.action_space,
            inference_only=self.inference_only,
            learner_only=self.learner_only,
            model_config_dict=self.model_config,
            catalog_class=None if self.catalog is None else type(self.catalog),
        )

    def _make_catalog(self, catalog_class: type | None) -> Exception | None:
        """Create the catalog; return the error if it does not support the spaces."""
        if catalog_class is None:
            return None
        try:
            self.catalog = catalog_class(
                observation_space=self.observation_space,
                action_space=self.action_space,
                model_config_dict=self.model_config,
            )
            if self.action_dist_cls is None:
                self.action_dist_cls = self.catalog.get_action_dist_cls(framework=self.framework)
            elif hasattr(self.catalog, "action_dist_cls"):
                self.catalog.action_dist_cls = self.action_dist_cls  # heads output its parameters
        except Exception as error:
            self.catalog = None
            return error
        return None

    def setup(self) -> None:
        """Create the parts of the module."""

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        """Compute the outputs for a batch; the default of the three phases."""
        return {}

    def _forward_inference(self, batch: Batch, **kwargs: object) -> Batch:
        """Compute actions, or parameters of their distribution, without exploration."""
        return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: Batch, **kwargs: object) -> Batch:
        """Compute actions, or parameters of their distribution, with exploration."""
        return self._forward(batch, **kwargs)

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        """Compute the inputs of the loss."""
        return self._forward(batch, **kwargs)

    def forward_inference(self, batch: Batch, **kwargs: object) -> Batch:
        """Call `_forward_inference`, which subclasses override instead of this method."""
        return self._forward_inference(batch, **kwargs)

    def forward_exploration(self, batch: Batch, **kwargs: object) -> Batch:
        """Call `_forward_exploration`, which subclasses override instead of this method."""
        return self._forward_exploration(batch, **kwargs)

    def forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        """Call `_forward_train`, which subclasses override instead of this method.

        Raises:
            RuntimeError: The module was built with `inference_only=True`.
        """
        if self.inference_only:
            raise RuntimeError(
                f"{type(self).__name__} was built with `inference_only=True`, which omits parts "
                "that training needs. Build it with `inference_only=False`."
            )
        return self._forward_train(batch, **kwargs)

    def get_initial_state(self) -> Tree:
        """Return the state at the start of an episode: a dict of arrays without batch dimension.

        Empty for modules without memory.
        """
        return {}

    def is_stateful(self) -> bool:
        """Return True if the module has a state that persists between steps."""
        if self._is_stateful is None:
            state = self.get_initial_state()
            if not isinstance(state, Mapping):
                raise TypeError(
                    f"{type(self).__name__}.get_initial_state() returned a {type(state).__name__}: "
                    "return a dict of arrays, empty if the module has no state."
                )
            self._is_stateful = bool(state)
        return self._is_stateful

    def get_inference_action_dist_cls(self) -> type[Distribution]:
        """Return the class of the distributions of `forward_inference`."""
        raise NotImplementedError(
            f"{type(self).__name__} returns no `actions`, so it needs `action_dist_cls` or "
            "`get_inference_action_dist_cls`."
        )

    def get_exploration_action_dist_cls(self) -> type[Distribution]:
        """Return the class of the distributions of `forward_exploration`."""
        return self.get_inference_action_dist_cls()

    def get_train_action_dist_cls(self) -> type[Distribution]:
        """Return the class of the distributions of `forward_train`."""
        return self.get_inference_action_dist_cls()

    def acting_policy(self) -> ActingPolicy:
        """Return the fastest acting policy for this module. See `acting.acting_policy`."""
        return ModuleActing(self)

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> StateDict:
        """Return the weights as NumPy arrays; with `inference_only`, those that acting needs."""
        return {}

    def set_state(self, state: StateDict) -> None:
        """Set the weights."""

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the arguments of the constructor."""
        return (), {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "inference_only": self.inference_only,
            "learner_only": self.learner_only,
            "model_config": self.model_config,
            "catalog_class": None if self.catalog is None else type(self.catalog),
        }

    def as_multi_rl_module(self) -> MultiRLModule:
        """Return a `MultiRLModule` that contains only this module, under the default id."""
        multi = MultiRLModule(rl_module_specs={})
        multi.add_module(DEFAULT_MODULE_ID, self)
        return multi

    def unwrapped(self) -> RLModule:
        """Return the module inside a wrapper such as DDP, or the module itself."""
        return self


class MultiRLModule(ModuleDict, RLModule):
    """A dict-like container of modules by id.

    Override `setup` to create parts that several modules share.

    Args:
        observation_space: Space of shared parts.
        action_space: Space of shared parts.
        inference_only: Build all modules with `inference_only=True`; None if all specify it.
        learner_only: Ignored.
        model_config: Settings of shared parts.
        rl_module_specs: Specification of each module.
    """

    def __init__(
        self,
        config: Any = None,
        *,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        inference_only: bool | None = None,
        learner_only: bool = False,
        model_config: ModelConfig | None = None,
        rl_module_specs: Mapping[str, RLModuleSpec] | None = None,
        **kwargs: Any,
    ) -> None:
        specs = {name: copy.copy(spec) for name, spec in (rl_module_specs or {}).items()}
        for name, spec in specs.items():
            if not isinstance(spec, RLModuleSpec):
                raise ValueError(
                    f"The specification of the module {name!r} is a {type(spec).__name__}: "
                    "pass an RLModuleSpec."
                )
            validate_module_id(name)
        if inference_only is None:
            inference_only = bool(specs) and all(spec.inference_only for spec in specs.values())
        if inference_only:
            for spec in specs.values():
                spec.inference_only = True
        self.rl_module_specs = specs
        ModuleDict.__init__(self)
        RLModule.__init__(
            self,
            config,
            observation_space=observation_space,
            action_space=action_space,
            inference_only=inference_only,
            model_config=model_config,
            **kwargs,
        )

    def setup(self) -> None:
        """Build the modules from their specifications."""
        self._rl_modules = {name: spec.build() for name, spec in self.rl_module_specs.items()}
        for module in self._rl_modules.values():
            self._adopt_framework(module)

    def _adopt_framework(self, module: RLModule) -> None:
        if self.framework is None:
            self.framework = module.framework
        elif module.framework not in (None, self.framework):
            raise ValueError(
                f"{type(module).__name__} uses {module.framework}, but the other modules use "
                f"{self.framework}."
            )

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        return self._foreach("_forward", batch, kwargs)

    def _forward_inference(self, batch: Batch, **kwargs: object) -> Batch:
        return self._foreach("forward_inference", batch, kwargs)

    def _forward_exploration(self, batch: Batch, **kwargs: object) -> Batch:
        return self._foreach("forward_exploration", batch, kwargs)

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        return self._foreach("forward_train", batch, kwargs)

    def _foreach(self, method: str, batch: Batch, kwargs: Options) -> Batch:
        """Call a method of each module in the batch; other keys are ignored."""
        return {
            name: getattr(self._rl_modules[name], method)(part, **kwargs)
            for name, part in batch.items()
            if name in self._rl_modules
        }

    def get_initial_state(self) -> Tree:
        """Return the initial states by module."""
        return {name: module.get_initial_state() for name, module in self._rl_modules.items()}

    def is_stateful(self) -> bool:
        """Return True if any module is stateful."""
        return any(module.is_stateful() for module in self._rl_modules.values())

    def add_module(self, module_id: str, module: RLModule, *, override: bool = False) -> None:
        """Add a module.

        Raises:
            ValueError: The id is taken and `override` is False, or is not a valid directory name.
        """
        validate_module_id(module_id)
        if module_id in self._rl_modules and not override:
            raise ValueError(
                f"The module {module_id!r} exists already. Use another id or `override=True`."
            )
        self._adopt_framework(module)
        self.inference_only = module.inference_only and (
            self.inference_only or not self._rl_modules
        )
        self._rl_modules[module_id] = module
        self.rl_module_specs[module_id] = RLModuleSpec.from_module(module.unwrapped())

    def remove_module(self, module_id: str, *, raise_err_if_not_found: bool = True) -> None:
        """Remove a module.

        Raises:
            KeyError: The module does not exist and `raise_err_if_not_found` is True.
        """
        if raise_err_if_not_found:
            self._check_exists(module_id)
        self._rl_modules.pop(module_id, None)
        self.rl_module_specs.pop(module_id, None)

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the arguments of the constructor."""
        return (), {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "inference_only": self.inference_only,
            "learner_only": self.learner_only,
            "model_config": self.model_config,
            "rl_module_specs": self.rl_module_specs,
        }

    def as_multi_rl_module(self) -> MultiRLModule:
        """Return this module."""
        return self


@dataclass
class RLModuleSpec:
    """The class and the constructor arguments of a module, possibly incomplete."""

    module_class: type[Any] | None = None
    """Class of the module."""
    observation_space: Space | None = None
    """Space of its observations."""
    action_space: Space | None = None
    """Space of its actions."""
    inference_only: bool = False
    """Omit the parts that only training needs."""
    learner_only: bool = False
    """Do not build this module on env runners."""
    model_config: ModelConfig | None = None
    """Settings; a dict for custom modules."""
    catalog_class: type | None = None
    """Class that builds the parts of default modules."""
    load_state_path: str | None = None
    """Checkpoint of a module whose weights `build` loads."""

    def build(self) -> ModuleType:
        """Build the module.

        Raises:
            ValueError: The class or the observation space is missing.
        """
        for name in ("module_class", "observation_space"):
            if getattr(self, name) is None:
                raise ValueError(f"RLModuleSpec.build() needs `{name}`, which is None.")
        assert self.module_class is not None
        module = self.module_class(
            observation_space=self.observation_space,
            action_space=self.action_space,
            inference_only=self.inference_only,
            model_config=model_config_dict(self.model_config),
            catalog_class=self.catalog_class,
            **({"learner_only": True} if self.learner_only else {}),
        )
        if self.load_state_path is not None:
            module.restore_from_path(self.load_state_path)
        return module

    @classmethod
    def from_module(cls, module: RLModule) -> RLModuleSpec:
        """Return the specification of a module."""
        if isinstance(module, MultiRLModule):
            raise ValueError("Use MultiRLModuleSpec.from_module() for a MultiRLModule.")
        return cls(
            module_class=type(module),
            observation_space=module.observation_space,
            action_space=module.action_space,
            inference_only=module.inference_only,
            learner_only=module.learner_only,
            model_config=module.model_config,
            catalog_class=None if module.catalog is None else type(module.catalog),
        )

    def update(self, other: RLModuleSpec, override: bool = True) -> None:
        """Copy the fields that `other` sets; without `override`, only those that are unset here."""
        if not isinstance(other, RLModuleSpec):
            raise ValueError(f"RLModuleSpec.update() got a {type(other).__name__}.")
        for name in (
            "module_class",
            "observation_space",
            "action_space",
            "model_config",
            "catalog_class",
            "load_state_path",
        ):
            mine, theirs = getattr(self, name), getattr(other, name)
            first, second = (theirs, mine) if override else (mine, theirs)
            setattr(self, name, second if first is None else first)
        if override:
            self.inference_only = other.inference_only or self.inference_only
            self.learner_only = other.learner_only and self.learner_only

    def as_multi_rl_module_spec(self) -> MultiRLModuleSpec:
        """Return a multi-module specification with this one under the default id."""
        return MultiRLModuleSpec(rl_module_specs={DEFAULT_MODULE_ID: self})


@dataclass
class MultiRLModuleSpec:
    """The class and the arguments of a `MultiRLModule`."""

    multi_rl_module_class: type[Any] = MultiRLModule
    """Class of the module that contains the others."""
    observation_space: Space | None = None
    """Space of shared parts."""
    action_space: Space | None = None
    """Space of shared parts."""
    inference_only: bool | None = None
    """Build all modules with `inference_only=True`; None if all specify it."""
    model_config: ModelConfig | None = None
    """Settings of shared parts."""
    rl_module_specs: dict[str, RLModuleSpec] | None = None
    """Specification of each module."""
    load_state_path: str | None = None
    """Checkpoint of a `MultiRLModule` whose weights `build` loads."""
    modules_to_load: Collection[str] | None = None
    """Modules to load from the checkpoint; None for all."""

    def __post_init__(self) -> None:
        if not isinstance(self.rl_module_specs, Mapping):
            raise ValueError(
                f"`rl_module_specs` is a {type(self.rl_module_specs).__name__}: pass a dict from "
                "module ids to RLModuleSpecs. To use one specification for all modules, pass the "
                "RLModuleSpec itself to `config.rl_module(rl_module_spec=...)`."
            )
        self.rl_module_specs = dict(self.rl_module_specs)
        if self.inference_only is None:
            self.inference_only = bool(self.rl_module_specs) and all(
                spec.inference_only for spec in self.rl_module_specs.values()
            )

    @property
    def _specs(self) -> dict[str, RLModuleSpec]:
        assert self.rl_module_specs is not None
        return self.rl_module_specs

    @property
    def module_specs(self) -> dict[str, RLModuleSpec]:
        """The specifications, under an older name."""
        return self._specs

    def build(self, module_id: str | None = None) -> ModuleType:
        """Build the `MultiRLModule`, or one of its modules."""
        if module_id is not None:
            return self[module_id].build()
        module = self.multi_rl_module_class(
            observation_space=self.observation_space,
            action_space=self.action_space,
            inference_only=self.inference_only,
            model_config=model_config_dict(self.model_config),
            rl_module_specs=self._specs,
        )
        if self.load_state_path is not None:
            wanted = self._specs if self.modules_to_load is None else self.modules_to_load
            for name in wanted:
                module[name].restore_from_path(f"{self.load_state_path}/{name}")
        return module

    @classmethod
    def from_module(cls, module: MultiRLModule) -> MultiRLModuleSpec:
        """Return the specification of a module."""
        return cls(
            multi_rl_module_class=type(module),
            observation_space=module.observation_space,
            action_space=module.action_space,
            inference_only=module.inference_only,
            model_config=module.model_config,
            rl_module_specs={
                name: RLModuleSpec.from_module(each.unwrapped()) for name, each in module.items()
            },
        )

    def add_modules(self, module_specs: Mapping[str, RLModuleSpec], override: bool = True) -> None:
        """Add specifications; replace existing ones, or update them if `override` is False."""
        for name, spec in module_specs.items():
            if override or name not in self._specs:
                self.inference_only = bool(self.inference_only and spec.inference_only)
                self._specs[name] = spec
            else:
                self._specs[name].update(spec)

    def remove_modules(self, module_ids: str | Collection[str]) -> None:
        """Remove specifications."""
        for name in [module_ids] if isinstance(module_ids, str) else module_ids:
            self._specs.pop(name, None)

    def update(self, other: MultiRLModuleSpec | RLModuleSpec, override: bool = False) -> None:
        """Copy the specifications of `other`; a single one completes each of these."""
        if isinstance(other, RLModuleSpec):
            self.inference_only = bool(self.inference_only and other.inference_only)
            for spec in self._specs.values():
                spec.update(other, override=False)
        else:
            self.add_modules(other._specs, override=override)

    def as_multi_rl_module_spec(self) -> MultiRLModuleSpec:
        """Return this specification."""
        return self

    def __contains__(self, module_id: object) -> bool:
        return module_id in self._specs

    def __getitem__(self, module_id: str) -> RLModuleSpec:
        if module_id not in self._specs:
            raise KeyError(
                f"Unknown module {module_id!r}: it has no specification."
                f"{did_you_mean(module_id, self._specs)}"
            )
        return self._specs[module_id]
