"""`Algorithm`: a trainable that samples environments, updates modules and evaluates them.

Covered: building, iterations, evaluation, modules, acting, checkpoints. Not covered: training
steps (`algorithms/`), the results of sampling (`runners/sampling_results`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementStrategy
from syncline.rl.algorithm.acting import Acting
from syncline.rl.algorithm.connector_states import ConnectorStates
from syncline.rl.algorithm.evaluation import Evaluator, ParallelEvaluation
from syncline.rl.algorithm.resource_check import check_resources
from syncline.rl.algorithm.sampled_ahead import SampledAhead
from syncline.rl.callbacks.callback_list import configured_callbacks
from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.columns.trees import leaves, map_tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.module_change import ModuleChange
from syncline.rl.envs.external.external_env import ExternalEnv
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.learners.group import LearnerGroup
from syncline.rl.learners.remote_group import make_learner_group
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import (
    COMPONENT_ENV_RUNNER,
    COMPONENT_LEARNER_GROUP,
    DEFAULT_MODULE_ID,
    ENV_RUNNER_RESULTS,
    EVALUATION_RESULTS,
    FAULT_TOLERANCE_STATS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED,
    NUM_TRAINING_STEP_CALLS_PER_ITERATION,
    TIMERS,
)
from syncline.rl.modules.rl_module import MultiRLModuleSpec, RLModule, RLModuleSpec
from syncline.rl.modules.torch.export import EXTENSIONS, ExportFormat, export_module
from syncline.rl.older.policy import Policy
from syncline.rl.older.results import older_results
from syncline.rl.records.recorder import VIDEOS_DIRECTORY, AlgorithmRecorder, recorder_of
from syncline.rl.records.time_split import STEPS_PER_S, TIME_SPLIT, TimeSplit
from syncline.rl.records.videos import save_video
from syncline.rl.runners.external_env_runner import ExternalEnvRunner, use_policy_server
from syncline.rl.runners.group import EnvRunnerGroup
from syncline.rl.runners.multi_agent_env_runner import MultiAgentEnvRunner
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.sampling_results import log_samples
from syncline.rl.runners.single_agent_env_runner import SingleAgentEnvRunner
from syncline.rl.value_types import (
    AgentMapping,
    Batch,
    CallArguments,
    Components,
    EnvRunnerType,
    OptionMapping,
    Options,
    Results,
    Tree,
)
from syncline.suggestions import did_you_mean
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import CONFIG, Config, Metrics
from syncline.tune.trainable.trainable import Trainable

logger = logging.getLogger("syncline")

AlgorithmT = TypeVar("AlgorithmT", bound="Algorithm")

STATE_FILE_NAME = "algorithm_state"


class Algorithm(Checkpointable, Trainable):
    """Base of algorithms; override `training_step` and `get_default_config`.

    Not thread-safe.

    Args:
        config: `AlgorithmConfig`, or a dictionary of options as `tune` passes it.
        env: Environment; replaces the one in the configuration.
        kwargs: Arguments that `tune` passes to trainables.
    """

    STATE_FILE_NAME = STATE_FILE_NAME
    METADATA_FILE_NAME = "rllib_checkpoint.json"

    def __init__(
        self,
        config: AlgorithmConfig | OptionMapping | None = None,
        env: object = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(config, AlgorithmConfig):
            self._given = config.copy(copy_frozen=False)
        else:
            self._given = self.get_default_config().update_from_dict(config or {})
            self._given.note_older(config or {})
        if env is not None:
            self._given.env = env
        self._given.algo_class = type(self)
        kwargs.pop("logger_creator", None)
        super().__init__({}, **kwargs)

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default options."""
        return AlgorithmConfig(algo_class=cls)

    # -- building

    def setup(self, config: Config) -> None:
        """Create learners and runners."""
        self._build(self._given)

    def _build(self, config: AlgorithmConfig) -> None:
        use_policy_server(config)
        config.validate()
        if config.seed is None:
            self.seed = int.from_bytes(os.urandom(4), "little") >> 1
        else:
            self.seed = config.seed
        config.freeze()
        self.config: Any = config
        self._config_dict: Options | None = None
        self.metrics = MetricsLogger(root=True)
        self._env_steps = 0
        self._time_split = TimeSplit()
        self._recorder: AlgorithmRecorder | None = None
        if self._info.trial_dir is None:  # the search has a record
            self._recorder = recorder_of(config, type(self).__name__)
        self.callbacks = configured_callbacks(config)
        if config.num_env_runners or config.num_learners or config.evaluation_num_env_runners:
            ensure_engine()
            check_resources(config)
        self.env_runner_group = self._make_runners(config)
        self._sampled_ahead = SampledAhead(self.env_runner_group)
        self._actings: dict[str, Acting] = {}
        self.connectors = ConnectorStates(config, self.env_runner_group)
        self.eval_env_runner_group: EnvRunnerGroup | None = None
        self._evaluator = Evaluator(config)
        self._spaces = self.env_runner_group.get_spaces()
        spec: MultiRLModuleSpec = config.get_multi_rl_module_spec(spaces=self._spaces)
        self.learner_group: LearnerGroup = make_learner_group(config=config, module_spec=spec)
        self._module_changes: list[ModuleChange] = []
        self.env_runner_group.share_modules(self.learner_group.local_modules)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)
        if config.evaluation_interval or config.evaluation_num_env_runners:
            self._make_eval_runners()
        self.callbacks.call("on_algorithm_init", algorithm=self, metrics_logger=self.metrics)

    def _make_runners(self, config: AlgorithmConfig) -> EnvRunnerGroup:
        if config.env is None and not config.is_offline and config.env_runner_cls is None:
            raise ValueError(
                f"{type(self).__name__} needs an environment: `config.environment('CartPole-v1')`."
            )
        runner_class = self.env_runner_class(config)
        return EnvRunnerGroup(config=config, runner_class=runner_class, observe=self.record_event)

    def env_runner_class(self, config: AlgorithmConfig) -> type:
        """Return the class of env runners."""
        if config.env_runner_cls is not None:
            given: type = config.env_runner_cls
            return given
        if isinstance(config.env, type) and issubclass(config.env, ExternalEnv):
            return ExternalEnvRunner
        return MultiAgentEnvRunner if config.is_multi_agent else SingleAgentEnvRunner

    def _make_eval_runners(self) -> EnvRunnerGroup:
        if self.eval_env_runner_group is None:
            self.eval_env_runner_group = self._make_runners(
                self.config.get_evaluation_config_object()
            )
            self.eval_env_runner_group.share_modules(self.learner_group.local_modules)
        return self.eval_env_runner_group

    # -- iterations

    def train(self) -> Metrics:
        """Run one iteration and return its result; outside of searches, record it."""
        if self._recorder is not None:
            self._recorder.begin()
        self._time_split.begin()
        self._steps_before = self._steps_sampled
        try:
            return super().train()
        except BaseException as error:
            if self._recorder is not None:
                self._recorder.failed(error)
            raise

    def step(self) -> Metrics:
        """Train until the iteration has reached its minimum steps and time; evaluate."""
        config = self.config
        began = time.monotonic()
        calls = steps = trained = 0
        interval = config.evaluation_interval
        is_due = bool(interval) and (self.training_iteration + 1) % interval == 0
        parallel = None
        if is_due and config.evaluation_parallel_to_training:
            parallel = self._begin_evaluation()
        while True:
            before = self._steps_sampled
            with self.metrics.log_time((TIMERS, "training_step")):
                returned = self.training_step()
            self.connectors.merge()
            calls += 1
            steps += self._steps_sampled - before
            trained = self._steps_trained
            if (
                time.monotonic() - began >= (config.min_time_s_per_iteration or 0)
                and steps >= (config.min_sample_timesteps_per_iteration or 0)
                and trained >= (config.min_train_timesteps_per_iteration or 0)
            ):
                break
        evaluation = {}
        if parallel is not None:
            with self._time_split.measure("evaluation"):
                evaluation = {EVALUATION_RESULTS: self._end_evaluation(parallel.results())}
                if config.render_env:
                    self._save_video()
        elif is_due:
            evaluation = {EVALUATION_RESULTS: self.evaluate()}
        result = {**self._results(returned, calls), **evaluation}
        return {**result, **older_results(result)} if config.is_older else result

    def training_step(self) -> Any:
        """Sample and learn once. Returned results are added to the logged ones."""
        raise NotImplementedError(f"{type(self).__name__} has no `training_step`: override it.")

    def _results(self, returned: object, calls: int) -> Metrics:
        self.metrics.log_value(NUM_TRAINING_STEP_CALLS_PER_ITERATION, calls, window=1)
        group = self.env_runner_group
        found: Metrics = self.metrics.reduce(compile=True)
        found.setdefault(ENV_RUNNER_RESULTS, {})
        found.setdefault(LEARNER_RESULTS, {})
        found[NUM_ENV_STEPS_SAMPLED_LIFETIME] = self._steps_sampled
        found[FAULT_TOLERANCE_STATS] = {
            "num_healthy_workers": group.num_healthy_remote_workers(),
            "num_remote_worker_restarts": group.num_remote_worker_restarts,
        }
        if isinstance(returned, Mapping):
            found.update(returned)
        return found

    def log_result(self, result: Metrics) -> None:
        """Call the callbacks of a complete result, and record it."""
        spent = self._time_split.seconds(self.config.num_env_runners)
        spent["learning_s"] += self.learner_group.take_busy_s()
        spent["sampling_s"] += self.env_runner_group.take_sampling_s()
        result[TIME_SPLIT] = spent
        steps = self._steps_sampled - self._steps_before
        result[STEPS_PER_S] = steps / max(spent["total_s"] - spent["evaluation_s"], 1e-9)
        self.callbacks.call(
            "on_train_result", algorithm=self, metrics_logger=self.metrics, result=result
        )
        super().log_result(result)
        if self._recorder is not None:
            self._recorder.report(result)

    def record_event(self, event: str, **fields: object) -> None:
        """Append an event to the record of the run; does nothing within a search."""
        if self._recorder is not None:
            self._recorder.event(event, **fields)

    @property
    def run_path(self) -> str | None:
        """Directory of the run's record; None without one."""
        return None if self._recorder is None else self._recorder.path

    def get_auto_filled_metrics(self, *args: Any, **kwargs: Any) -> Metrics:
        """Return the default keys of every result."""
        filled = super().get_auto_filled_metrics(*args, **kwargs)
        if self._config_dict is None:
            self._config_dict = self.config.to_dict()
        filled[CONFIG] = self._config_dict
        return filled

    # -- for training steps

    def sample_batch(self, steps: int, **options: object) -> list[Sample]:
        """Sample `steps` steps, or complete episodes with at least as many; log the results."""
        group = self.env_runner_group
        with self.metrics.log_time((TIMERS, "env_runner_sampling_timer")):
            total = None if self.config.rollout_fragment_length == "auto" else steps
            if self.config.batch_mode == "complete_episodes":
                samples = group.sample_complete(steps, **options)
            elif self.config.sample_ahead and group.num_remote_env_runners:
                samples = self._sampled_ahead.take(total, options)
            else:
                samples = group.sample_steps(total, **options)
        self.log_samples(samples)
        return samples

    def log_samples(self, samples: list[Sample]) -> None:
        """Log the results of samples."""
        self._env_steps += sum(sample.env_steps for sample in samples)
        self.connectors.note(samples)
        self._time_split.add_samples(samples)
        if self._recorder is not None:
            self._recorder.add_samples(samples)
        log_samples(
            self.metrics,
            (ENV_RUNNER_RESULTS,),
            samples,
            self.config.metrics_num_episodes_for_smoothing,
        )

    def update(self, **options: Any) -> None:
        """Update the learners, and log their results; see `LearnerGroup.update`."""
        with self.metrics.log_time((TIMERS, "learner_update_timer")):
            result = self.learner_group.update(timesteps=self.timesteps(), **options)
        self.metrics.aggregate([result], key=LEARNER_RESULTS)

    def timesteps(self) -> dict[str, int]:
        """Return the lifetime counts for schedules."""
        return {NUM_ENV_STEPS_SAMPLED_LIFETIME: self._steps_sampled}

    @property
    def _steps_sampled(self) -> int:
        return self._env_steps

    @property
    def _steps_trained(self) -> int:
        key = (LEARNER_RESULTS, "__all_modules__", NUM_ENV_STEPS_TRAINED)
        return int(self.metrics.peek(key)) if key in self.metrics else 0

    # -- evaluation

    def evaluate(self) -> Metrics:
        """Evaluate the current policy; return results under "env_runners"."""
        with self._time_split.measure("evaluation"):
            results = self._evaluate()
            if self.config.render_env:
                self._save_video()
            return results

    def _save_video(self) -> None:
        """Write a video of an episode into the run's record, or the trial's directory."""
        directory = self.logdir
        if self._recorder is not None:
            self._recorder.begin()
            directory = self._recorder.path if self._recorder.is_local else directory
        try:
            name, episode = save_video(self, os.path.join(directory, VIDEOS_DIRECTORY))
        except (ValueError, ImportError, OSError) as error:
            logger.warning("No video is recorded: %s", error)
            return
        self.record_event(
            "video",
            file=f"{VIDEOS_DIRECTORY}/{name}",
            iteration=self.training_iteration,
            env_steps=self._steps_sampled,
            episode_return=episode.episode_return,
            length=episode.length,
        )

    def _evaluate(self) -> Metrics:
        group = self._prepare_evaluation()
        return self._end_evaluation(self._evaluator.run(group, algorithm=self))

    def _begin_evaluation(self) -> ParallelEvaluation:
        """Evaluate the current policy in parallel to training."""
        group = self._prepare_evaluation()
        return ParallelEvaluation(self._evaluator, group, algorithm=self)

    def _prepare_evaluation(self) -> EnvRunnerGroup:
        group = self._make_eval_runners()
        group.sync_weights(from_worker_or_learner_group=self.learner_group)
        self.connectors.send_to(group)
        self.callbacks.call("on_evaluate_start", algorithm=self, metrics_logger=self.metrics)
        return group

    def _end_evaluation(self, results: Metrics) -> Metrics:
        self.callbacks.call(
            "on_evaluate_end",
            algorithm=self,
            metrics_logger=self.metrics,
            evaluation_metrics=results,
        )
        return dict(results)

    # -- modules and weights

    def get_module(self, module_id: str = DEFAULT_MODULE_ID) -> RLModule | None:
        """Return the module that the runners use, or None if the id is unknown."""
        found: RLModule | None = self.learner_group.local_modules.get(module_id)
        return found

    def get_policy(self, policy_id: str = DEFAULT_MODULE_ID) -> Policy:
        """Return a module behind the `Policy` interface of older releases.

        Raises:
            KeyError: The module does not exist.
        """
        acting = self._acting_of(policy_id)
        config = self.config.get_config_for_module(policy_id)

        def learn(columns: Mapping[str, object]) -> Batch:
            batch = self.learner_group.batch_of_rows({policy_id: dict(columns)})
            result = self.learner_group.update(batch=batch, timesteps=self.timesteps())
            self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)
            logger_of_update = MetricsLogger(root=True)
            logger_of_update.aggregate([result])
            found: Results = logger_of_update.reduce(compile=True)
            return found

        return Policy(acting, config, learn)

    def compute_single_action(
        self,
        observation: Tree = None,
        state: Tree = None,
        *,
        policy_id: str = DEFAULT_MODULE_ID,
        full_fetch: bool = False,
        explore: bool | None = None,
        episode: SingleAgentEpisode | None = None,
        unsquash_action: bool | None = None,
        **ignored: object,
    ) -> Tree:
        """Return an action for an observation, ready for `env.step`.

        With `state` or `full_fetch`, return the action, the next state and the other outputs.

        Args:
            observation: An observation of the environment, as arrays, lists or numbers; it passes
                the connectors.
            state: State of a module with memory; begin with `get_policy().get_initial_state()`.
            policy_id: The module.
            full_fetch: Also return states and outputs.
            explore: Draw the action; None for the configured value.
            episode: Episode that ends with the observation, for connectors that look back.
            unsquash_action: False for the module's own action in [-1, 1].
            ignored: Arguments from older releases, without effect.
        """
        actions, states, outputs = self._acting_of(policy_id).act(
            [observation],
            [state] if state else None,
            explore=bool(self.config.explore) if explore is None else explore,
            episodes=None if episode is None else [episode],
            for_env=unsquash_action is not False,
        )
        if state is None and not full_fetch:
            return actions[0]
        next_state: object = states[0] if states else []
        if isinstance(state, list):
            next_state = leaves(next_state)
        first = {name: map_tree(lambda leaf: leaf[0], each) for name, each in outputs.items()}
        return actions[0], next_state, first

    compute_action = compute_single_action

    def compute_actions(
        self,
        observations: AgentMapping[Tree] | Sequence[object],
        state: AgentMapping[Tree] | Sequence[object] | None = None,
        *,
        policy_id: str = DEFAULT_MODULE_ID,
        full_fetch: bool = False,
        explore: bool | None = None,
        **ignored: object,
    ) -> Tree:
        """Return actions for several observations, by the same keys; see `compute_single_action`.

        With `state` or `full_fetch`, return actions, next states and the other outputs as
        dictionaries with these keys. For a list or an array of observations, return lists instead
        of dictionaries.
        """
        if not isinstance(observations, Mapping):
            found = self.compute_actions(
                dict(enumerate(observations)),
                state if state is None else dict(enumerate(state)),
                policy_id=policy_id,
                full_fetch=full_fetch,
                explore=explore,
            )
            if isinstance(found, tuple):
                return tuple(list(each.values()) for each in found)
            return list(found.values())
        keys = list(observations)
        actions, states, outputs = self._acting_of(policy_id).act(
            [observations[key] for key in keys],
            [state[key] for key in keys] if state else None,
            explore=bool(self.config.explore) if explore is None else explore,
        )
        by_key = dict(zip(keys, actions, strict=True))
        if state is None and not full_fetch:
            return by_key
        return (
            by_key,
            dict(zip(keys, states, strict=True)) if states else {},
            {
                key: {n: map_tree(lambda leaf, i=i: leaf[i], each) for n, each in outputs.items()}
                for i, key in enumerate(keys)
            },
        )

    def _acting_of(self, module_id: str) -> Acting:
        module = self.get_module(module_id)
        if module is None:
            known = list(self.learner_group.local_modules)
            raise KeyError(
                f"Unknown module {module_id!r}.{did_you_mean(module_id, known)} Modules: "
                f"{', '.join(known)}."
            )
        if module_id not in self._actings or self._actings[module_id].module is not module:
            self._actings[module_id] = Acting(
                module,
                self.connectors.pipelines,
                normalize_actions=self.config.normalize_actions,
                clip_actions=self.config.clip_actions,
                seed=self.seed,
                multi_agent=self.config.is_multi_agent,
            )
        return self._actings[module_id]

    def get_weights(self, policies: Collection[str] | None = None) -> dict[str, StateDict]:
        """Return the states of modules by id."""
        return self.learner_group.get_weights(policies)

    def set_weights(self, weights: dict[str, StateDict]) -> None:
        """Set the states of modules by id."""
        self.learner_group.set_weights(weights)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)

    def add_module(
        self,
        module_id: str,
        module_spec: RLModuleSpec,
        *,
        config_overrides: Mapping[str, object] | None = None,
        new_agent_to_module_mapping_fn: Callable[..., str] | None = None,
        new_should_module_be_updated: Collection[str] | Callable[..., bool] | None = None,
        add_to_learners: bool = True,
        add_to_env_runners: bool = True,
        add_to_eval_env_runners: bool = True,
    ) -> MultiRLModuleSpec:
        """Add a module to the learners and to all runners; return the specification of all modules.

        Callbacks such as `on_train_result` may call it. Checkpoints contain the module. It starts
        with new weights; `set_weights({module_id: get_weights([other])[other]})` copies the weights
        of another module.

        Args:
            module_id: Id of the module.
            module_spec: Its specification; the configuration provides missing fields.
            config_overrides: Options of the algorithm for this module alone.
            new_agent_to_module_mapping_fn: New `policy_mapping_fn` for agents that appear later.
            new_should_module_be_updated: New `policies_to_train`: ids, or a function.
            add_to_learners: Add it to the learners.
            add_to_env_runners: Add it to the runners that sample for training.
            add_to_eval_env_runners: Add it to the runners of evaluations.

        Raises:
            ValueError: The module exists already, or the runners support only one module.
        """
        default = next(iter(self.learner_group.local_modules.values()))
        spaces = default.observation_space, default.action_space
        complete = self.config.completed_module_spec(module_spec, spaces, module_id)
        self._change_modules(
            ModuleChange(
                module_id=module_id,
                spec=complete,
                spaces=self._spaces,
                overrides=config_overrides,
                mapping_fn=new_agent_to_module_mapping_fn,
                to_train=new_should_module_be_updated,
                in_learners=add_to_learners,
                in_env_runners=add_to_env_runners,
                in_eval_env_runners=add_to_eval_env_runners,
            )
        )
        return MultiRLModuleSpec.from_module(self.learner_group.local_modules)

    def remove_module(
        self,
        module_id: str,
        *,
        new_agent_to_module_mapping_fn: Callable[..., str] | None = None,
        new_should_module_be_updated: Collection[str] | Callable[..., bool] | None = None,
        remove_from_learners: bool = True,
        remove_from_env_runners: bool = True,
        remove_from_eval_env_runners: bool = True,
    ) -> None:
        """Remove a module. Environments whose agents use it begin new episodes.

        Args:
            module_id: Id of the module.
            new_agent_to_module_mapping_fn: New `policy_mapping_fn`, which does not map to it.
            new_should_module_be_updated: New `policies_to_train`: ids, or a function.
            remove_from_learners: Remove it from the learners.
            remove_from_env_runners: Remove it from the runners that sample for training.
            remove_from_eval_env_runners: Remove it from the runners of evaluations.

        Raises:
            KeyError: The module does not exist.
            ValueError: It is the only module.
        """
        self._change_modules(
            ModuleChange(
                module_id=module_id,
                spec=None,
                spaces=self._spaces,
                mapping_fn=new_agent_to_module_mapping_fn,
                to_train=new_should_module_be_updated,
                in_learners=remove_from_learners,
                in_env_runners=remove_from_env_runners,
                in_eval_env_runners=remove_from_eval_env_runners,
            )
        )

    def _change_modules(self, change: ModuleChange) -> None:
        """Apply a change in the learners, which may share their modules with a runner, and then in
        the runners.
        """
        change.check(self.config)
        groups = []
        if change.in_env_runners:
            groups.append(self.env_runner_group)
        if change.in_eval_env_runners and self.eval_env_runner_group is not None:
            groups.append(self.eval_env_runner_group)
        for group in groups:
            group.check_change(change)
        self.config = change.changed(self.config)
        self._config_dict = None
        self._actings.pop(change.module_id, None)
        if change.in_learners:
            self.learner_group.change_modules(change)
        for group in groups:
            group.change_modules(change)
        if change.in_learners and change.spec is not None:
            for group in groups:
                group.sync_weights(from_worker_or_learner_group=self.learner_group)
        self._module_changes.append(change)
        event = "module_removed" if change.spec is None else "module_added"
        self.record_event(event, module=change.module_id, iteration=self.training_iteration)

    def _repeat_changes(self, changes: Sequence[ModuleChange]) -> None:
        """Repeat the module changes of the algorithm that wrote a checkpoint."""
        for change in changes[len(self._module_changes) :]:
            exists = change.module_id in self.config.policies
            if exists == (change.spec is None):
                self._change_modules(change)
            else:  # the configuration comes from the checkpoint
                self._module_changes.append(change)

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Export the modules as programs that act greedily: "onnx" or "torchscript".

        Return the file by format, or the directory if there are several modules.
        """
        modules = self.learner_group.local_modules
        written = {}
        for name in export_formats:
            for module_id, module in modules.items():
                path = os.path.join(export_dir, f"{module_id}{EXTENSIONS.get(name, '')}")
                export_module(
                    module,
                    path,
                    cast("ExportFormat", name),
                    scale_actions=self.config.normalize_actions,
                )
            written[name] = path if len(modules) == 1 else export_dir
        return written

    @property
    def env_runner(self) -> EnvRunnerType:
        """The runner in this process; None if other processes sample."""
        return self.env_runner_group.local_env_runner

    @property
    def eval_env_runner(self) -> EnvRunnerType:
        """The evaluation runner in this process, if there is one."""
        group = self.eval_env_runner_group
        return None if group is None else group.local_env_runner

    # -- checkpoints

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint into a directory."""
        self.save_to_path(checkpoint_dir)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the checkpoint in a directory."""
        self.restore_from_path(os.fspath(checkpoint))

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        state: StateDict = {
            "algorithm_class": type(self),
            "config": self.config.get_state(),
            "module_changes": list(self._module_changes),
            "progress": self._progress.totals(),
            "metrics": self.metrics.get_state(),
            "env_steps": self._env_steps,
            "sampled_ahead": self._sampled_ahead.get_state(),
            "env_runners": self.env_runner_group.get_states(),
        }
        if self._check_component(COMPONENT_LEARNER_GROUP, components, not_components):
            state[COMPONENT_LEARNER_GROUP] = self.learner_group.get_state(**kwargs)
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore a state, and send its weights to the runners."""
        self._repeat_changes(state.get("module_changes", ()))
        if COMPONENT_LEARNER_GROUP in state:
            self.learner_group.set_state(state[COMPONENT_LEARNER_GROUP])
            self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)
        if "metrics" in state:
            self.metrics.set_state(state["metrics"])
            self._env_steps = state["env_steps"]
        if "progress" in state:
            self.continue_from(state["progress"])
        self._sampled_ahead.set_state(state.get("sampled_ahead"))
        if "env_runners" in state and not self.env_runner_group.set_states(state["env_runners"]):
            logger.warning(
                "The environments begin new episodes: the checkpoint lacks their states, or the "
                "number of runners has changed."
            )
            self.connectors.send_to(self.env_runner_group)

    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Write a checkpoint; return its path."""
        written: str = super().save_to_path(path, **kwargs)
        if self._recorder is not None:
            self._recorder.saved(str(written), self.training_iteration)
        return written

    def restore_from_path(self, path: Any, **kwargs: Any) -> None:
        """Restore a checkpoint, or one component of it with `component=`, and send the weights to
        the runners.
        """
        if kwargs.get("component") is None:
            self._repeat_changes(self.saved_state(path).get("module_changes", ()))
        super().restore_from_path(path, **kwargs)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)
        self.callbacks.call("on_checkpoint_loaded", algorithm=self)

    def get_checkpointable_components(self) -> Components:
        """Return the learner group, and the connectors of the runners."""
        return [
            (COMPONENT_LEARNER_GROUP, self.learner_group),
            (COMPONENT_ENV_RUNNER, self.connectors),
        ]

    @classmethod
    def saved_config(cls, path: Any) -> AlgorithmConfig:
        """Return a modifiable copy of the configuration in a checkpoint.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
        """
        keywords = cls.saved_arguments(path)[2]
        config: AlgorithmConfig = keywords["config"]
        return config.copy(copy_frozen=False)

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the arguments of the constructor."""
        return (), {"config": self.config}

    def cleanup(self) -> None:
        """Stop runners and learners."""
        self.env_runner_group.stop()
        if self.eval_env_runner_group is not None:
            self.eval_env_runner_group.stop()
        self.learner_group.shutdown()
        if self._recorder is not None:
            self._recorder.close()

    # -- resources

    @classmethod
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """Return the resources of a trial: the main process, learners and runners."""
        if not isinstance(config, AlgorithmConfig):
            config = cls.get_default_config().update_from_dict(config or {})
        return resources(config)


def resources(config: AlgorithmConfig) -> PlacementGroupFactory:
    """Return the bundles of an algorithm: its process, learners, runners, evaluation runners."""
    learner: Options = {
        "CPU": 1 if config.num_cpus_per_learner == "auto" else config.num_cpus_per_learner,
        "GPU": config.num_gpus_per_learner,
        **config.custom_resources_per_learner,
    }
    main: Options = {
        "CPU": config.num_cpus_for_main_process,
        "GPU": 0 if config.num_remote_learners else config.num_gpus_per_learner or config.num_gpus,
        **config.custom_resources_for_main_process,
    }
    runner: Options = {
        "CPU": config.num_cpus_per_env_runner,
        "GPU": config.num_gpus_per_env_runner,
        **config.custom_resources_per_env_runner,
    }
    runners = config.num_env_runners + config.evaluation_num_env_runners
    bundles = [main, *[learner] * config.num_remote_learners, *[runner] * runners]
    return PlacementGroupFactory(
        [{name: amount for name, amount in each.items() if amount} for each in bundles],
        strategy=cast("PlacementStrategy", config.placement_strategy),
    )
