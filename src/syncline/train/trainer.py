"""`DataParallelTrainer`: trainer of a training function. Checks all arguments before anything
starts.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from syncline.core.tracebacks import forget_engine
from syncline.suggestions import suggest_arguments
from syncline.train.backend import BackendConfig
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.controller.driver import TrainController
from syncline.train.controller.name_conflicts import named
from syncline.train.controller.remote_controller import run_remotely, uses_remote_controller
from syncline.train.errors import TrainingFailedError
from syncline.train.local_mode import check_torchrun, run_in_process
from syncline.train.result import Result
from syncline.train.run_config import RunConfig
from syncline.train.workers.spec import RunSpec, deserialized

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncline.data.context import DataContext

LoopConfig: TypeAlias = dict[str, Any]
TrainLoop: TypeAlias = Callable[[], object] | Callable[[LoopConfig], object]
ConfigT = TypeVar("ConfigT", bound=BackendConfig)


@suggest_arguments
class DataParallelTrainer:
    """Runs a training function on every worker of a group, with restarts and checkpoints.

    Args:
        train_loop_per_worker: Training function; called with `train_loop_config` (or `{}`) if it
            has a parameter.
        train_loop_config: Argument of the training function.
        backend_config: Framework around the training function.
        scaling_config: Number of workers and their resources.
        run_config: Name, storage, failure policy, callbacks.
        datasets: `syncline.data.Dataset`, or a function that creates one, by name; read with
            `get_dataset_shard(name)`.
        dataset_config: Distribution of the datasets over the workers.
        resume_from_checkpoint: First result of `get_checkpoint()` in a run without checkpoints.
        metadata: Stored with every checkpoint.
        validation_config: Validation for `report(validation=True)`.

    Raises:
        ValueError: Invalid arguments.
        TypeError: A value of `datasets` is not a dataset.
    """

    def __init__(
        self,
        train_loop_per_worker: TrainLoop,
        *,
        train_loop_config: LoopConfig | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        for name, value, kind in (
            ("train_loop_config", train_loop_config, Mapping),
            ("backend_config", backend_config, BackendConfig),
            ("scaling_config", scaling_config, ScalingConfig),
            ("run_config", run_config, RunConfig),
            ("dataset_config", dataset_config, DataConfig),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
            ("metadata", metadata, Mapping),
            ("datasets", datasets, Mapping),
            ("validation_config", validation_config, ValidationConfig),
        ):
            if value is not None and not isinstance(value, kind):
                raise ValueError(
                    f"`{name}` is a {type(value).__name__} ({value!r:.80}), but must be a "
                    f"{kind.__name__} or None."
                )
        if datasets or dataset_config is not None:
            from syncline.train.datasets import check  # loads syncline.data: half a second

            check(datasets or {}, dataset_config or DataConfig())
        self._spec = RunSpec(
            train_function=train_loop_per_worker,
            takes_config=takes_config(train_loop_per_worker),
            train_config=train_loop_config or {},
            backend_config=backend_config or BackendConfig(),
            scaling_config=scaling_config or ScalingConfig(),
            run_config=run_config or RunConfig(),
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
            datasets=datasets or {},
            data_config=dataset_config or DataConfig(),
            data_context=_changed_data_context(),
        )

    @classmethod
    def restore(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raise a DeprecationWarning that says how a run continues."""
        raise DeprecationWarning(_RESTORE)

    @classmethod
    def can_restore(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raise a DeprecationWarning that says how a run continues."""
        raise DeprecationWarning(_RESTORE)

    @property
    def scaling_config(self) -> ScalingConfig:
        """Number of workers and their resources."""
        return self._spec.scaling_config

    @property
    def run_config(self) -> RunConfig:
        """Name, storage, failure policy, callbacks."""
        return self._spec.run_config

    def changed(
        self,
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> Self:
        """Return a copy with additions to `train_loop_config` and other configurations replaced."""
        trainer = copy.copy(self)
        trainer._spec = replace(
            self._spec,
            train_config={**deserialized(self._spec.train_config), **(train_loop_config or {})},
            scaling_config=scaling_config or self._spec.scaling_config,
            run_config=run_config or self._spec.run_config,
        )
        return trainer

    def fit(self) -> Result:
        """Train and return the result.

        A run of this name that was interrupted or failed is continued. If it has finished with the
        same `train_loop_config`, its result is returned, without `return_value`; with another one,
        it continues from its last checkpoint (see `RunConfig.on_conflict`).

        On a cluster, if a run of this name is in progress, attach to it; its own arguments are
        used.

        Raises:
            TrainingFailedError: a `WorkerGroupError` after more than `max_failures` failed
                attempts, a `ControllerError`, …
            ValueError: the run directory cannot be written, or holds a search or a run in progress;
                the resources can never be had.
            TypeError: the training function, or its configuration, cannot be pickled.
            RuntimeError: torchrun started the program several times.
        """
        if self._spec.scaling_config.max_workers == 0:
            return run_in_process(self._spec)
        check_torchrun("a training")
        try:
            is_remote = uses_remote_controller()
            spec = named(self._spec, attaches=is_remote)
            if isinstance(spec, Result):
                return spec
            return run_remotely(spec) if is_remote else TrainController(spec).run()
        except (TrainingFailedError, ValueError, TypeError, KeyboardInterrupt) as error:
            forget_engine(error)  # hide the controller's frames
            raise


_RESTORE = (
    "Trainers are not restored: create the trainer again with the same "
    "`RunConfig(name=…, storage_path=…)`, and `fit()` continues an interrupted or failed run; "
    "`train.get_checkpoint()` returns its latest checkpoint. Use `Result.from_path(path)` to read "
    "the results of a run."
)


def _changed_data_context() -> DataContext | None:
    """Return a copy of the program's settings of datasets; None if they are the defaults."""
    if "syncline.data.context" not in sys.modules:
        return None
    from syncline.data.context import DataContext  # loads syncline.data: half a second

    current = DataContext.get_current()
    return None if current == DataContext() else current.copy()


def framework_config(name: str, value: ConfigT | None, kind: type[ConfigT]) -> ConfigT | None:
    """Return the configuration of a framework that a trainer was given as the argument `name`.

    Raises:
        TypeError: It is not a `kind`.
    """
    if value is not None and not isinstance(value, kind):
        raise TypeError(
            f"`{name}` is a {type(value).__name__}, but must be a `{kind.__name__}`, or None for "
            "the defaults."
        )
    return value


def takes_config(function: Callable[..., Any]) -> bool:
    """Return True if a training function has a parameter for the configuration.

    Raises:
        ValueError: It is not a function, or needs more than one argument.
    """
    if not callable(function):
        raise ValueError(
            f"`train_loop_per_worker` is a {type(function).__name__} ({function!r:.80}), but must "
            "be a function."
        )
    name = getattr(function, "__name__", repr(function))
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C
        return True
    required = [
        p
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
        names = ", ".join(p.name for p in required)
        raise ValueError(
            f"The training function `{name}({names})` needs {len(required)} arguments, but gets at "
            "most one, the configuration. Put everything into `train_loop_config` and write "
            f"`def {name}(config)`, or bind the others with `functools.partial`."
        )
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters
    )
