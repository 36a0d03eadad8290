"""`AlgorithmConfig`: all options of an algorithm, as a builder with dictionary access.

Covered: access, copies, overrides, derived values and checks. Not covered: the options themselves
(the section files of this package) and the options of single algorithms (`algorithms/`).
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar

from syncline.rl.config.environment import EnvironmentOptions
from syncline.rl.config.evaluation import EvaluationOptions
from syncline.rl.config.exploration_options import check_exploration
from syncline.rl.config.learning import LearningOptions
from syncline.rl.config.offline import OfflineOptions
from syncline.rl.config.older import OLDER_NAMES, RENAMED, WITHOUT_EFFECT
from syncline.rl.config.running import RunningOptions
from syncline.rl.config.sampling import SamplingOptions
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided, check_choice
from syncline.rl.connectors.defaults import (
    FILTERS,
    env_to_module_pipeline,
    learner_pipeline,
    module_to_env_pipeline,
)
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.modules.apis import ValueFunctionAPI
from syncline.rl.modules.rl_module import MultiRLModuleSpec, RLModuleSpec
from syncline.rl.older.model_config import converted
from syncline.rl.older.policy_spec import options_of
from syncline.rl.older.registered import resolved
from syncline.rl.older.torch.model_modules import ModelV2Catalog, ModelV2Module
from syncline.rl.value_types import (
    CheckedSpace,
    Device,
    OptionMapping,
    Options,
    SpacePair,
    StateDict,
)
from syncline.runs.json_values import JsonObject
from syncline.suggestions import did_you_mean

logger = logging.getLogger("syncline")

ConfigT = TypeVar("ConfigT", bound="AlgorithmConfig")

LARGEST_MISS = 0.1
"""Maximum relative difference between the batch size and the number of sampled steps."""


class AlgorithmConfig(
    EnvironmentOptions,
    SamplingOptions,
    LearningOptions,
    EvaluationOptions,
    OfflineOptions,
    RunningOptions,
):
    """Options of an algorithm.

    Every method sets options and returns the configuration. Options are also attributes and keys.
    Subclasses set the defaults of their algorithm in `__init__`.

    Args:
        algo_class: The `Algorithm` that `build_algo` creates.
    """

    algo_class: type | None = None

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__()
        self.__dict__["_is_frozen"] = False
        self.__dict__["_is_older"] = False
        self.algo_class = algo_class

    # -- creation and copies

    @classmethod
    def from_dict(cls: type[ConfigT], config_dict: Mapping[str, object]) -> ConfigT:
        """Return a configuration with the options of a dictionary."""
        return cls().update_from_dict(config_dict)

    @classmethod
    def overrides(cls, **kwargs: object) -> Options:
        """Return options for `evaluation_config` or for single modules; check their names.

        Raises:
            KeyError: An unknown option.
        """
        known = cls()
        for name in kwargs:
            if _attribute(name) not in known.__dict__:
                raise KeyError(
                    f"{cls.__name__} has no option {name!r}.{did_you_mean(name, known.keys())}"
                )
        return dict(kwargs)

    def update_from_dict(self: ConfigT, config_dict: OptionMapping) -> ConfigT:
        """Set options from a dictionary; set unknown options too, with a warning."""
        for key, value in config_dict.items():
            if key in ("multiagent", "multi_agent"):
                self.multi_agent(**value)
            elif key == "evaluation_config" and isinstance(value, AlgorithmConfig):
                self.evaluation_config = value
            elif key == "env_config":
                self.environment(env_config=value)
            elif key == "model" and isinstance(value, Mapping):
                self.training(model=dict(value))
            elif key == "exploration_config" and value is not None:
                self.exploration_config = {**self.exploration_config, **value}
            elif key.startswith("__") or key in WITHOUT_EFFECT:
                continue
            else:
                self._warn_if_unknown(key)
                setattr(self, key, value)
        return self

    def copy(self: ConfigT, copy_frozen: bool | None = None) -> ConfigT:
        """Return a copy that is frozen (True), modifiable (False) or like this one (None)."""
        made = object.__new__(type(self))
        for name, value in self.__dict__.items():
            made.__dict__[name] = _copied(value)
        if copy_frozen is not None:
            made.__dict__["_is_frozen"] = copy_frozen
        return made

    def freeze(self) -> None:
        """Forbid further changes."""
        self.__dict__["_is_frozen"] = True
        if isinstance(self.evaluation_config, AlgorithmConfig):
            self.evaluation_config.freeze()

    def to_dict(self) -> Options:
        """Return all options, under their public names."""
        return {_public(name): _copied(value) for name, value in self._options()}

    def serialize(self) -> JsonObject:
        """Return all options as plain values, for records."""
        return {name: _plain(value) for name, value in self.to_dict().items()}

    def get_state(self) -> StateDict:
        """Return class and options for `from_state`."""
        return {"class": type(self), **self.__dict__}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> AlgorithmConfig:
        """Rebuild the configuration from the state that `get_state` returned."""
        made: AlgorithmConfig = object.__new__(state["class"])
        made.__dict__.update({name: value for name, value in state.items() if name != "class"})
        return made

    # -- access as a dictionary

    def __setattr__(self, name: str, value: object) -> None:
        if self.__dict__.get("_is_frozen"):
            raise AttributeError(
                f"The configuration is frozen, so `{name}` cannot be set to {value!r}: make a "
                "modifiable copy with `config.copy(copy_frozen=False)`."
            )
        if name in WITHOUT_EFFECT:
            return
        if name in OLDER_NAMES:
            self.__dict__["_is_older"] = True
        object.__setattr__(self, _attribute(name), value)

    def __getattr__(self, name: str) -> Any:
        if name in RENAMED and RENAMED[name] in self.__dict__:
            return self.__dict__[RENAMED[name]]
        raise AttributeError(
            f"{type(self).__name__} has no option {name!r}."
            f"{did_you_mean(name, [key for key in self.__dict__ if key[0] != '_'])}"
        )

    def __getitem__(self, key: str) -> Any:
        if key == "multiagent":
            return {
                "policies": self.policies,
                "policy_mapping_fn": self.policy_mapping_fn,
                "policies_to_train": self.policies_to_train,
            }
        try:
            return getattr(self, _property_or_attribute(self, key))
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "multiagent":
            self.multi_agent(**value)
        else:
            setattr(self, key, value)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and hasattr(self, _property_or_attribute(self, key))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def get(self, key: str, default: object = None) -> Any:
        """Return an option, or `default` if the name is unknown."""
        try:
            return self[key]
        except KeyError:
            return default

    def pop(self, key: str, default: object = None) -> Any:
        """Return an option without removing it."""
        return self.get(key, default)

    def keys(self) -> list[str]:
        """Return the public names of all options."""
        return [_public(name) for name, _ in self._options()]

    def values(self) -> list[Any]:
        """Return the values of all options."""
        return [value for _, value in self._options()]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return names and values of all options."""
        return [(_public(name), value) for name, value in self._options()]

    def __repr__(self) -> str:
        default = type(self)().__dict__
        changed = {
            _public(name): value
            for name, value in self._options()
            if name not in default or not _equal(default[name], value)
        }
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def _options(self) -> list[tuple[str, Any]]:
        return [
            (name, value)
            for name, value in self.__dict__.items()
            if name not in ("_is_frozen", "_is_older", "algo_class")
        ]

    def _warn_if_unknown(self, key: str) -> None:
        if _attribute(key) not in self.__dict__ and not hasattr(type(self), key):
            warnings.warn(
                f"{type(self).__name__} has no option {key!r}; it is stored without effect."
                f"{did_you_mean(key, self.keys())}",
                stacklevel=3,
            )

    @property
    def is_older(self) -> bool:
        """True if options were set under names from older releases, by a dictionary or by methods.

        Results then also have the keys of those releases.
        """
        return bool(self.__dict__.get("_is_older"))

    def note_older(self, config_dict: Mapping[str, object]) -> None:
        """Remember that options came from a dictionary of an older release."""
        if "num_env_runners" not in config_dict:
            self.__dict__["_is_older"] = True

    # -- derived values

    @property
    def learner_class(self) -> Any:
        """Class of the learners."""
        return self._learner_class or self.get_default_learner_class()

    @property
    def rl_module_spec(self) -> Any:
        """Specification of the modules, by default the algorithm's."""
        return self._rl_module_spec or self.get_default_rl_module_spec()

    @property
    def model_config(self) -> Options:
        """Options of the networks as a dictionary: defaults of the algorithm with all overrides."""
        return resolved(
            {
                **self._model_config_auto_includes,
                **converted(self.model),
                **as_dict(self._model_config),
            }
        )

    @property
    def _model_config_auto_includes(self) -> Options:
        """Network options with other defaults in this algorithm."""
        return {}

    @property
    def train_batch_size_per_learner(self) -> int:
        """Batch size per learner, in rows."""
        given = self._train_batch_size_per_learner
        return given or self.train_batch_size // (self.num_learners or 1)

    @property
    def total_train_batch_size(self) -> int:
        """Batch size of all learners, in rows."""
        return self.train_batch_size_per_learner * (self.num_learners or 1)

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Return the steps per environment in a fragment of a runner.

        With "auto", runners with a low index sample one more step if that makes the batch exact.
        """
        if self.rollout_fragment_length != "auto":
            return int(self.rollout_fragment_length)
        envs = self.num_envs_per_env_runner * (self.num_env_runners or 1)
        length, missing = divmod(self.total_train_batch_size, envs)
        if missing > max(worker_index - 1, 0) * self.num_envs_per_env_runner:
            length += 1
        return max(length, 1)

    @property
    def is_online(self) -> bool:
        """True if the algorithm samples environments."""
        return True

    @property
    def is_offline(self) -> bool:
        """True if the algorithm learns offline, from recorded data."""
        return not (self.input_ == "sampler" or self.input_ is None)

    def get_config_for_module(self, module_id: str) -> AlgorithmConfig:
        """Return the options of one module."""
        changes = {
            **options_of(self.policies.get(module_id)),
            **self.algorithm_config_overrides_per_module.get(module_id, {}),
        }
        if not changes:
            return self
        return self.copy(copy_frozen=False).update_from_dict(changes)

    def get_evaluation_config_object(self) -> AlgorithmConfig:
        """Return the options of evaluation."""
        given = self.evaluation_config
        made = self.copy(copy_frozen=False)
        if isinstance(given, AlgorithmConfig):
            made = given.copy(copy_frozen=False)
        elif given:
            made.update_from_dict(given)
        made.num_env_runners = self.evaluation_num_env_runners
        made.evaluation_config = None
        made.in_evaluation = True
        made.sample_timeout_s = self.evaluation_sample_timeout_s
        if self.seed is not None:
            made.seed = self.seed + 1_000_000
        return made

    # -- for algorithms to override

    def get_default_rl_module_spec(self) -> RLModuleSpec | MultiRLModuleSpec:
        """Return the specification of the algorithm's module."""
        raise NotImplementedError(
            f"{type(self).__name__} has no default module: override "
            "`get_default_rl_module_spec`, or pass `rl_module(rl_module_spec=…)`."
        )

    def get_default_learner_class(self) -> Any:
        """Return the algorithm's learner class."""
        raise NotImplementedError(
            f"{type(self).__name__} has no learner: override `get_default_learner_class`, or pass "
            "`learners(learner_class=…)`."
        )

    # -- connectors

    def build_env_to_module_connector(
        self, env: object = None, spaces: object = None, device: Device = None
    ) -> ConnectorPipelineV2:
        """Return the connectors from environments to modules (`env_to_module_pipeline`)."""
        return env_to_module_pipeline(self, env, spaces, device)

    def build_module_to_env_connector(
        self, env: object = None, spaces: object = None
    ) -> ConnectorPipelineV2:
        """Return the connectors from modules to environments (`module_to_env_pipeline`)."""
        return module_to_env_pipeline(self, env, spaces)

    def build_learner_connector(
        self,
        input_observation_space: CheckedSpace,
        input_action_space: CheckedSpace,
        device: Device = None,
    ) -> ConnectorPipelineV2:
        """Return the connectors from episodes to learners (`learner_pipeline`)."""
        return learner_pipeline(self, input_observation_space, input_action_space, device)

    # -- modules

    def get_rl_module_spec(
        self, spaces: tuple[object, object] | None = None, inference_only: bool = False
    ) -> RLModuleSpec:
        """Return the complete specification of the only module."""
        spec = self.rl_module_spec
        if isinstance(spec, MultiRLModuleSpec):
            (spec,) = (spec.rl_module_specs or {}).values()
        return self._completed(spec, spaces, inference_only, None)

    def get_multi_rl_module_spec(
        self, spaces: Mapping[str, tuple[object, object]], inference_only: bool = False
    ) -> MultiRLModuleSpec:
        """Return the complete specification of all modules.

        Args:
            spaces: Observation and action space by module id.
            inference_only: Leave out networks that only training needs.
        """
        given = self.rl_module_spec
        by_id = given.rl_module_specs if isinstance(given, MultiRLModuleSpec) else {}
        multi = (
            copy.copy(given)
            if isinstance(given, MultiRLModuleSpec)
            else MultiRLModuleSpec(rl_module_specs={})
        )
        specs: dict[str, RLModuleSpec] = {}
        for module_id in dict.fromkeys([*self.policies, *by_id] if by_id else self.policies):
            spec = by_id.get(module_id) if isinstance(by_id, Mapping) else given
            if spec is None and isinstance(given, RLModuleSpec):
                spec = given
            declared = self.policies.get(module_id)
            if isinstance(declared, RLModuleSpec):
                spec = declared
            found = spaces.get(module_id) or _declared_spaces(declared)
            if inference_only and spec is not None and spec.learner_only:
                continue
            specs[module_id] = self._completed(spec, found, inference_only, module_id)
        multi.rl_module_specs = specs
        multi.inference_only = inference_only
        return multi

    def completed_module_spec(
        self, given: RLModuleSpec, spaces: tuple[object, object], module_id: str
    ) -> RLModuleSpec:
        """Return the specification of an additional module, completed with defaults."""
        return self._completed(given, spaces, False, module_id)

    def _completed(
        self,
        given: RLModuleSpec | None,
        spaces: SpacePair | None,
        inference_only: bool,
        module_id: str | None,
    ) -> RLModuleSpec:
        default = self.get_default_rl_module_spec()
        if isinstance(default, MultiRLModuleSpec):
            default = next(iter((default.rl_module_specs or {}).values()))
        spec = copy.copy(given) if given is not None else copy.copy(default)
        config = self.get_config_for_module(module_id) if module_id else self
        spec.module_class = spec.module_class or default.module_class
        spec.catalog_class = spec.catalog_class or default.catalog_class
        spec.model_config = {**config.model_config, **as_dict(spec.model_config)}
        if spaces is not None:
            spec.observation_space = spec.observation_space or spaces[0]
            spec.action_space = spec.action_space or spaces[1]
        spec.inference_only = inference_only
        if spec.module_class is default.module_class:
            _use_older_model(spec)
        return spec

    # -- checks and building

    def validate(self) -> None:
        """Check all options.

        Raises:
            ValueError: An option is invalid, or two options contradict each other.
        """
        self._check_choices()
        self._check_numbers()
        self._check_modules()
        self._check_connectors()
        check_exploration(self.exploration_config or {}, has_values=hasattr(self, "epsilon"))
        if self.enable_rl_module_and_learner != self.enable_env_runner_and_connector_v2:
            raise ValueError(
                "`enable_rl_module_and_learner` and `enable_env_runner_and_connector_v2` must be "
                "both True or both False."
            )
        if self.is_online and not self.is_offline:
            self.validate_train_batch_size_vs_rollout_fragment_length()

    def _check_choices(self) -> None:
        check_choice("batch_mode", self.batch_mode, ("truncate_episodes", "complete_episodes"))
        check_choice(
            "gym_env_vectorize_mode",
            getattr(self.gym_env_vectorize_mode, "value", self.gym_env_vectorize_mode),
            ("sync", "async", "vector_entry_point"),
        )
        check_choice("torch_autocast", self.torch_autocast, ("bfloat16", "float16", None))
        check_choice("grad_clip_by", self.grad_clip_by, ("global_norm", "norm", "value"))
        check_choice(
            "evaluation_duration_unit", self.evaluation_duration_unit, ("episodes", "timesteps")
        )
        check_choice("count_steps_by", self.count_steps_by, ("env_steps", "agent_steps"))

    def _check_numbers(self) -> None:
        for name, least in (
            ("num_env_runners", 0),
            ("num_envs_per_env_runner", 1),
            ("num_learners", 0),
            ("num_epochs", 1),
            ("train_batch_size_per_learner", 1),
            ("evaluation_num_env_runners", 0),
            ("metrics_num_episodes_for_smoothing", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"`{name}={value!r}` must be a whole number of at least {least}.")
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"`gamma={self.gamma!r}` must be between 0 and 1.")
        if self.lr is not None:
            _check_rate("lr", self.lr)
        duration = self.evaluation_duration
        if duration != "auto" and (not isinstance(duration, int) or duration < 1):
            raise ValueError(
                f"`evaluation_duration={duration!r}` must be a whole number of at least 1, or "
                "'auto'."
            )
        size, rows = self.minibatch_size, self.train_batch_size_per_learner
        if size is not None and size > rows:
            raise ValueError(
                f"`minibatch_size={size}` is larger than the batch of "
                f"`train_batch_size_per_learner={rows}` rows: lower it."
            )
        if self.evaluation_parallel_to_training and not self.evaluation_num_env_runners:
            raise ValueError(
                "`evaluation_parallel_to_training=True` needs processes that evaluate: set "
                "`evaluation_num_env_runners=1` or more."
            )
        auto = self.evaluation_duration == "auto"
        if auto and not self.evaluation_parallel_to_training:
            raise ValueError(
                "`evaluation_duration='auto'` needs `evaluation_parallel_to_training=True`."
            )

    def _check_connectors(self) -> None:
        check_choice("observation_filter", self.observation_filter, FILTERS)
        if self.is_multi_agent and self.model_config.get("custom_preprocessor"):
            raise ValueError(
                "`custom_preprocessor` has no effect with several agents, whose observations have "
                "different spaces. Remove the option and set "
                "`env_runners(env_to_module_connector=…)` to a `MultiAgentObservationPreprocessor`."
            )

    def _check_modules(self) -> None:
        given = self._rl_module_spec
        if isinstance(given, MultiRLModuleSpec) and isinstance(given.rl_module_specs, Mapping):
            unknown = sorted(set(given.rl_module_specs) - set(self.policies))
            if unknown and self.is_multi_agent:
                learner_only = [i for i in unknown if given.rl_module_specs[i].learner_only]
                unknown = [i for i in unknown if i not in learner_only]
                if unknown:
                    logger.info("Modules without agents: %s", ", ".join(unknown))
        for module_id in self.algorithm_config_overrides_per_module:
            if module_id not in self.policies:
                logger.warning(
                    "`algorithm_config_overrides_per_module` names %r, which is not among the "
                    "modules %s; it takes effect if a module with this id is added.%s",
                    module_id,
                    sorted(self.policies),
                    did_you_mean(module_id, self.policies),
                )
        train = self.policies_to_train
        if train is not None and not callable(train):
            for module_id in train:
                if module_id not in self.policies:
                    raise ValueError(
                        f"`policies_to_train` names {module_id!r}, which is not among the "
                        f"modules {sorted(self.policies)}."
                        f"{did_you_mean(module_id, self.policies)}"
                    )

    def validate_train_batch_size_vs_rollout_fragment_length(self) -> None:
        """Check that the runners can make batches of the configured size.

        Raises:
            ValueError: The number of sampled steps differs from the batch size by more than 10 %.
        """
        length = self.rollout_fragment_length
        if self.in_evaluation or self.batch_mode == "complete_episodes":
            return
        if length == "auto":
            self._check_batch_of_all_envs()
            return
        if not isinstance(length, int) or length < 1:
            raise ValueError(
                f"`rollout_fragment_length={length!r}` must be a whole number of at least 1, or "
                "'auto'."
            )
        if not self._samples_whole_batches:
            return
        envs = self.num_envs_per_env_runner * (self.num_env_runners or 1)
        least, batch = envs * length, self.total_train_batch_size
        if -batch % least > LARGEST_MISS * batch:
            fitting = max(batch // envs, 1)
            raise ValueError(
                f"{self.num_env_runners or 1} runners x {self.num_envs_per_env_runner} "
                f"environments x `rollout_fragment_length={length}` deliver multiples of {least} "
                f"steps, which differ from the batch size {batch} by more than 10 %. Set "
                f"`rollout_fragment_length` to {fitting} or 'auto', or the batch size to a "
                f"multiple of {least}."
            )

    def _check_batch_of_all_envs(self) -> None:
        """Check that one step of every environment is not much larger than the batch."""
        envs = self.num_envs_per_env_runner * (self.num_env_runners or 1)
        batch = self.total_train_batch_size
        per_runner = self.num_envs_per_env_runner
        if self._samples_whole_batches and -batch % per_runner > LARGEST_MISS * batch:
            raise ValueError(
                f"{self.num_env_runners or 1} runners x {per_runner} environments deliver "
                f"multiples of {per_runner} steps, which differ from the batch size {batch} by "
                "more than 10 %. Set `num_envs_per_env_runner` to a divisor of "
                f"{batch}, or the batch size to a multiple of {envs}."
            )

    @property
    def _samples_whole_batches(self) -> bool:
        """True for on-policy algorithms, whose batches consist of the sampled steps."""
        return False

    def build_algo(self, env: object = None, use_copy: bool = True, **ignored: object) -> Any:
        """Create the algorithm.

        Args:
            env: Environment; replaces `environment(env=…)`.
            use_copy: Build from a copy, so that this configuration remains modifiable.
            ignored: Arguments from older releases, without effect.

        Raises:
            ValueError: Invalid options.
        """
        config = self.copy(copy_frozen=False) if use_copy else self
        if env is not None:
            config.env = env
        if config.algo_class is None:
            raise ValueError(
                f"{type(self).__name__} does not belong to an algorithm: use the configuration of "
                "an algorithm, such as PPOConfig, or pass `algo_class`."
            )
        return config.algo_class(config=config)

    def build(self, env: object = None, use_copy: bool = True, **ignored: object) -> Any:
        """Create the algorithm; older name of `build_algo`."""
        return self.build_algo(env, use_copy)


def _check_rate(name: str, value: Any) -> None:
    """Raise ValueError unless a learning rate or its schedule is valid and not negative."""
    Schedule(value, name)
    values = [value] if isinstance(value, (int, float)) else [at for _, at in value]
    if min(values) < 0:
        raise ValueError(f"`{name}={value!r}` must not be negative.")


def _use_older_model(spec: RLModuleSpec) -> None:
    """Use the network or distribution from older releases that the options name."""
    options: Any = spec.model_config or {}
    if not options.get("custom_model") and not options.get("custom_action_dist"):
        return
    if issubclass(spec.module_class or object, ValueFunctionAPI):
        spec.module_class = ModelV2Module
    else:
        spec.catalog_class = ModelV2Catalog


def as_dict(options: Any) -> Options:
    """Return network options as a dictionary; they are a dataclass, a dictionary or None."""
    if options is None:
        return {}
    if is_dataclass(options) and not isinstance(options, type):
        return asdict(options)
    return dict(options)


def _declared_spaces(declared: object) -> tuple[object, object] | None:
    """Return the spaces in the policy specification of older releases."""
    if isinstance(declared, tuple) and len(declared) >= 3:
        return declared[1], declared[2]
    spaces = (getattr(declared, "observation_space", None), getattr(declared, "action_space", None))
    return spaces if None not in spaces else None


def _attribute(name: str) -> str:
    return RENAMED.get(name, name)


def _property_or_attribute(config: AlgorithmConfig, key: str) -> str:
    return key if hasattr(type(config), key) else _attribute(key)


_PUBLIC = {
    **{
        attribute: name
        for name, attribute in RENAMED.items()
        if attribute.removeprefix("_") == name
    },
    "lambda_": "lambda",
    "input_": "input",
    "framework_str": "framework",
    "callbacks_class": "callbacks",
}


def _public(attribute: str) -> str:
    return _PUBLIC.get(attribute, attribute)


def _copied(value: object) -> Any:
    """Return a copy of containers that shares other values."""
    if isinstance(value, AlgorithmConfig):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, set):
        return set(value)
    return value


def _plain(value: object) -> Any:
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', value)}"
    return as_plain_text(value)


def as_plain_text(value: object) -> str:
    """Return a short text for a configuration value."""
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return one is other


__all__ = ["AlgorithmConfig", "NotProvided", "as_dict"]
