"""Options of training: hyperparameters, learners, modules, the framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from syncline.rl.config.section import NotProvided, Section
from syncline.rl.value_types import Options, OptionSchedule

ConfigT = TypeVar("ConfigT", bound="LearningOptions")

AutocastType = Literal["bfloat16", "float16"]
LearningRate = OptionSchedule | None
"""A number, or a schedule `[[0, x], [step, y], …]` over sampled environment steps."""


class LearningOptions(Section):
    """Options of `training()`, `learners()`, `rl_module()` and `framework()`."""

    gamma: float = 0.99
    lr: LearningRate = 0.001
    grad_clip: float | None = None
    grad_clip_by: str = "global_norm"
    _train_batch_size_per_learner: int | None = None
    train_batch_size: int = 32
    num_epochs: int = 1
    minibatch_size: int | None = None
    shuffle_batch_per_epoch: bool = False
    model: Options = {}
    optimizer: Options = {}

    num_learners: int = 0
    num_gpus_per_learner: float = 0
    num_cpus_per_learner: float | str = "auto"
    custom_resources_per_learner: dict[str, float] = {}
    num_aggregator_actors_per_learner: int = 0
    max_requests_in_flight_per_aggregator_actor: int = 3
    local_gpu_idx: int = 0
    max_requests_in_flight_per_learner: int = 3
    _learner_class: type | None = None
    _learner_connector: Callable[..., object] | None = None
    add_default_connectors_to_learner_pipeline: bool = True
    learner_config_dict: Options = {}

    _model_config: Any = {}
    _rl_module_spec: Any = None
    algorithm_config_overrides_per_module: Options = {}

    framework_str: str = "torch"
    torch_compile_learner: bool = False
    torch_compile_learner_what_to_compile: Any = "forward_train"
    torch_compile_learner_dynamo_backend: str = "inductor"
    torch_compile_learner_dynamo_mode: str | None = None
    torch_compile_worker: bool = False
    torch_compile_worker_dynamo_backend: str = "inductor"
    torch_compile_worker_dynamo_mode: str | None = None
    torch_ddp_kwargs: Options = {}
    torch_skip_nan_gradients: bool = False
    torch_autocast: AutocastType | None = None

    @property
    def num_remote_learners(self) -> int:
        """Number of learners in other processes.

        A single learner without a separate GPU runs in the algorithm's process: a remote learner
        would compute the same and need a copy of each batch.
        """
        if self.num_learners == 1 and not self.num_gpus_per_learner:
            return 0
        return self.num_learners

    def training(
        self: ConfigT,
        *,
        gamma: float = NotProvided,
        lr: LearningRate = NotProvided,
        grad_clip: float | None = NotProvided,
        grad_clip_by: Literal["global_norm", "norm", "value"] = NotProvided,
        train_batch_size: int = NotProvided,
        train_batch_size_per_learner: int = NotProvided,
        num_epochs: int = NotProvided,
        minibatch_size: int | None = NotProvided,
        shuffle_batch_per_epoch: bool = NotProvided,
        model: Options = NotProvided,
        optimizer: Options = NotProvided,
        num_aggregator_actors_per_learner: int = NotProvided,
        max_requests_in_flight_per_aggregator_actor: int = NotProvided,
        learner_class: type | None = NotProvided,
        learner_connector: Callable[..., object] | None = NotProvided,
        add_default_connectors_to_learner_pipeline: bool = NotProvided,
        learner_config_dict: Options = NotProvided,
        **older: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            gamma: Discount factor.
            lr: Learning rate, or a piecewise linear schedule `[[0, x], [step, y], …]` over sampled
                environment steps.
            grad_clip: Clipping threshold of gradients; None disables clipping.
            grad_clip_by: Clip by the global norm of an optimizer's gradients, by the norm of each
            gradient, or by value.
            train_batch_size: Batch size in rows (name from older releases).
            train_batch_size_per_learner: Batch size per learner, in rows.
            num_epochs: Number of passes over a batch.
            minibatch_size: Minibatch size in rows; None for whole batches.
            shuffle_batch_per_epoch: Shuffle the rows before each pass.
            model: Model options from older releases.
            optimizer: Optimizer options from older releases.
            num_aggregator_actors_per_learner: Has no effect: batches need no aggregators.
            max_requests_in_flight_per_aggregator_actor: Has no effect.
            learner_class: Subclass of the algorithm's `TorchLearner`.
            learner_connector: Function of (observation_space, action_space) that returns the
                connectors between samples and loss.
            add_default_connectors_to_learner_pipeline: Append the default connectors.
            learner_config_dict: Options of a custom learner class; merged.
            older: Option names from older releases.
        """
        given = dict(locals())
        given.update(self._older("training", given.pop("older")))
        return self._set_learning(given)

    def learners(
        self: ConfigT,
        *,
        num_learners: int = NotProvided,
        num_cpus_per_learner: float | Literal["auto"] = NotProvided,
        num_gpus_per_learner: float = NotProvided,
        custom_resources_per_learner: dict[str, float] = NotProvided,
        num_aggregator_actors_per_learner: int = NotProvided,
        max_requests_in_flight_per_aggregator_actor: int = NotProvided,
        local_gpu_idx: int = NotProvided,
        max_requests_in_flight_per_learner: int = NotProvided,
        learner_class: type | None = NotProvided,
        learner_connector: Callable[..., object] | None = NotProvided,
        add_default_connectors_to_learner_pipeline: bool = NotProvided,
        learner_config_dict: Options = NotProvided,
    ) -> ConfigT:
        """Set the learners.

        Args:
            num_learners: Number of remote learners; 0, or 1 without a GPU, trains in the
                algorithm's process.
            num_cpus_per_learner: CPUs of each learner; "auto" is 1, or 0 with a GPU.
            num_gpus_per_learner: GPUs of each learner; may be fractional.
            custom_resources_per_learner: Other resources of each learner.
            num_aggregator_actors_per_learner: Has no effect: batches need no aggregators.
            max_requests_in_flight_per_aggregator_actor: Has no effect.
            local_gpu_idx: GPU of a local learner.
            max_requests_in_flight_per_learner: Maximum number of queued batches per learner.
            learner_class: Subclass of the algorithm's `TorchLearner`.
            learner_connector: Function of (observation_space, action_space) that returns the
                connectors between samples and loss.
            add_default_connectors_to_learner_pipeline: Append the default connectors.
            learner_config_dict: Options of a custom learner class; merged.
        """
        return self._set_learning(dict(locals()))

    def _set_learning(self: ConfigT, given: Options) -> ConfigT:
        if given.get("learner_config_dict", NotProvided) is not NotProvided:
            given["learner_config_dict"] = {
                **self.learner_config_dict,
                **given["learner_config_dict"],
            }
        if given.get("model", NotProvided) is not NotProvided:
            given["model"] = {**self.model, **given["model"]}
        return self._set(
            given,
            learner_class="_learner_class",
            learner_connector="_learner_connector",
            train_batch_size_per_learner="_train_batch_size_per_learner",
        )

    def rl_module(
        self: ConfigT,
        *,
        model_config: object = NotProvided,
        rl_module_spec: object = NotProvided,
        algorithm_config_overrides_per_module: Mapping[str, object] = NotProvided,
    ) -> ConfigT:
        """Set the networks.

        Args:
            model_config: `DefaultModelConfig`, or a dictionary of its fields or of the options of
                a custom module.
            rl_module_spec: `RLModuleSpec` or `MultiRLModuleSpec`.
            algorithm_config_overrides_per_module: Options of single modules by id, created with
                `AlgorithmConfig.overrides(…)`.
        """
        return self._set(
            dict(locals()), model_config="_model_config", rl_module_spec="_rl_module_spec"
        )

    def framework(
        self: ConfigT,
        framework: str = NotProvided,
        *,
        torch_compile_learner: bool = NotProvided,
        torch_compile_learner_what_to_compile: object = NotProvided,
        torch_compile_learner_dynamo_backend: str = NotProvided,
        torch_compile_learner_dynamo_mode: str | None = NotProvided,
        torch_compile_worker: bool = NotProvided,
        torch_compile_worker_dynamo_backend: str = NotProvided,
        torch_compile_worker_dynamo_mode: str | None = NotProvided,
        torch_ddp_kwargs: Options = NotProvided,
        torch_skip_nan_gradients: bool = NotProvided,
        torch_autocast: AutocastType | None = NotProvided,
        **ignored: object,
    ) -> ConfigT:
        """Set the options of the framework, which is always torch.

        Args:
            framework: "torch".
            torch_compile_learner: Compile the training pass.
            torch_compile_learner_what_to_compile: Has no effect: `forward_train` is compiled.
            torch_compile_learner_dynamo_backend: Backend of `torch.compile`.
            torch_compile_learner_dynamo_mode: Mode of `torch.compile`.
            torch_compile_worker: Compile the acting pass.
            torch_compile_worker_dynamo_backend: Backend of `torch.compile`.
            torch_compile_worker_dynamo_mode: Mode of `torch.compile`.
            torch_ddp_kwargs: Has no effect: gradients of several learners are averaged directly.
            torch_skip_nan_gradients: Skip updates whose gradients are not finite, instead of
                setting those gradients to 0.
            torch_autocast: Compute training passes and losses in mixed precision, with matrix
                products in this dtype; weights, gradients and optimizers stay in float32. "float16"
                needs `experimental(_torch_grad_scaler_class=torch.amp.GradScaler)`. None for
                float32.
            ignored: Options of TensorFlow in older releases.
        """
        given = dict(locals())
        del given["ignored"]
        if framework not in (NotProvided, "torch", None):
            raise ValueError(
                f"`framework={framework!r}` is not supported: modules and learners use torch. "
                "Remove the option or pass 'torch'."
            )
        return self._set(given, framework="framework_str")
