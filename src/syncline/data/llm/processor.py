"""`Processor`: stages that it applies to datasets; `build_processor` makes one of a
configuration.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from syncline.core import api
from syncline.data.dataset import Dataset
from syncline.data.llm.config import (
    HttpRequestProcessorConfig,
    OfflineProcessorConfig,
    ProcessorConfig,
)
from syncline.data.llm.http_requests import HttpRequestStage
from syncline.data.llm.stages import ERROR, EngineStage
from syncline.data.plan.compute import ActorPoolStrategy
from syncline.records import dataclass

logger = logging.getLogger("syncline")

RowFunction: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
MapOptions: TypeAlias = Mapping[str, Any]

_MESSAGES = {"messages": "The conversation: a list of {'role': …, 'content': …}."}
_PROMPT = {
    "prompt": "The text; required without `tokenized_prompt`.",
    "tokenized_prompt": "The tokens of the prompt; required without `prompt`.",
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a processor. Stages of a model run in one class."""

    name: str
    fn: type
    """The class for `map_batches`."""
    fn_constructor_kwargs: dict[str, Any]
    """Its arguments."""
    required: dict[str, str] = field(default_factory=dict)
    """Columns that it needs, with descriptions."""
    optional: dict[str, str] = field(default_factory=dict)
    """Further columns that it reads."""

    def get_required_input_keys(self) -> dict[str, str]:
        """Return the columns that the stage needs, with descriptions."""
        return dict(self.required)

    def get_optional_input_keys(self) -> dict[str, str]:
        """Return further columns that the stage reads, with descriptions."""
        return dict(self.optional)


class Processor:
    """Applies `preprocess`, the stages of a configuration, and `postprocess` to datasets.

    Args:
        config: The configuration.
        stages: The stages, in their order.
        preprocess: Returns the row that the stages need; the row itself by default.
        postprocess: Returns the row of the result; all columns by default.
        preprocess_map_kwargs: Options of `Dataset.map` for `preprocess`.
        postprocess_map_kwargs: Options of `Dataset.map` for `postprocess`.
    """

    def __init__(
        self,
        config: ProcessorConfig,
        stages: list[Stage],
        preprocess: RowFunction | None = None,
        postprocess: RowFunction | None = None,
        preprocess_map_kwargs: MapOptions | None = None,
        postprocess_map_kwargs: MapOptions | None = None,
    ) -> None:
        for name, function in (("preprocess", preprocess), ("postprocess", postprocess)):
            if function is not None and not callable(function):
                raise ValueError(f"{name}={function!r} is not a function of a row")
        self.config = config
        self.stages = {stage.name: stage for stage in stages}
        self.preprocess = preprocess
        self.postprocess = postprocess
        self._preprocess_options = dict(preprocess_map_kwargs or {})
        self._postprocess_options = dict(postprocess_map_kwargs or {})

    def __call__(self, dataset: Dataset) -> Dataset:
        """Return the processed dataset, which is computed lazily."""
        if self.preprocess is not None:
            dataset = dataset.map(self.preprocess, **self._preprocess_options)
        stage = next(iter(self.stages.values()))
        dataset = dataset.map_batches(
            stage.fn,
            batch_size=self.config.batch_size,
            batch_format="pyarrow",
            fn_constructor_kwargs=stage.fn_constructor_kwargs,
            **self._resources(),
        )
        if self.postprocess is not None:
            keeps_errors = getattr(self.config, "should_continue_on_error", False)
            function = (
                functools.partial(_unless_failed, self.postprocess)
                if keeps_errors
                else self.postprocess
            )
            dataset = dataset.map(function, **self._postprocess_options)
        return dataset

    def list_stage_names(self) -> list[str]:
        """Return the names of the stages, in their order."""
        return list(self.stages)

    def get_stage_by_name(self, name: str) -> Stage:
        """Return a stage. Raise ValueError for an unknown name."""
        if name not in self.stages:
            raise ValueError(f"there is no stage {name!r}: the stages are {', '.join(self.stages)}")
        return self.stages[name]

    def log_input_column_names(self) -> None:
        """Log the columns that the first stage reads."""
        stage = next(iter(self.stages.values()))
        lines = [f"The first stage of the processor is {stage.name}."]
        for title, keys in (("Required", stage.required), ("Optional", stage.optional)):
            if keys:
                lines += [f"{title} input columns:", *(f"\t{k}: {v}" for k, v in keys.items())]
        logger.info("\n".join(lines))

    def _resources(self) -> dict[str, Any]:
        config = self.config
        least, most = (
            config.concurrency
            if isinstance(config.concurrency, tuple)
            else (config.concurrency, config.concurrency)
        )
        in_flight = getattr(config, "max_tasks_in_flight_per_actor", None)
        options: dict[str, Any] = {
            "compute": ActorPoolStrategy(
                min_size=least, max_size=most, max_tasks_in_flight_per_actor=in_flight
            )
        }
        if isinstance(config, OfflineProcessorConfig):
            if config.runtime_env:
                options["runtime_env"] = config.runtime_env
            if api.cluster_resources().get("GPU", 0):
                given = config.engine_kwargs
                options["num_gpus"] = given.get("tensor_parallel_size", 1) * given.get(
                    "pipeline_parallel_size", 1
                )
        return options


def build_processor(
    config: ProcessorConfig,
    preprocess: RowFunction | None = None,
    postprocess: RowFunction | None = None,
    preprocess_map_kwargs: MapOptions | None = None,
    postprocess_map_kwargs: MapOptions | None = None,
    builder_kwargs: Mapping[str, Any] | None = None,
) -> Processor:
    """Return the processor of a configuration.

    Args:
        config: For example `vLLMEngineProcessorConfig` or `HttpRequestProcessorConfig`.
        preprocess: Returns, for a row, the columns that the first stage needs: `messages` (or
            `prompt`) and `sampling_params`, or `payload`.
        postprocess: Returns the row of the result, of the columns of the stages, such as
            `generated_text` or `http_response`, and those of `preprocess`.
        preprocess_map_kwargs: Options of `Dataset.map` for `preprocess`.
        postprocess_map_kwargs: Options of `Dataset.map` for `postprocess`.
        builder_kwargs: `chat_template_kwargs`, further values for the chat template.

    Raises:
        TypeError: `config` is not a processor configuration, or an argument is unknown.
    """
    extra = dict(builder_kwargs or {})
    values = extra.pop("chat_template_kwargs", None)
    if extra or (values is not None and not isinstance(config, OfflineProcessorConfig)):
        raise TypeError(
            f"builder_kwargs={builder_kwargs!r}: only processors with a model take "
            "`chat_template_kwargs`, and there are no others"
        )
    if isinstance(config, HttpRequestProcessorConfig):
        stages = [_http_stage(config)]
    elif isinstance(config, OfflineProcessorConfig):
        stages = _model_stages(config, values)
    else:
        raise TypeError(
            f"{config!r} does not configure a processor: pass a `vLLMEngineProcessorConfig` or an "
            "`HttpRequestProcessorConfig`"
        )
    return Processor(
        config, stages, preprocess, postprocess, preprocess_map_kwargs, postprocess_map_kwargs
    )


build_llm_processor = build_processor
"""Older name of `build_processor`."""


def _http_stage(config: HttpRequestProcessorConfig) -> Stage:
    return Stage(
        name="HttpRequestStage",
        fn=HttpRequestStage,
        fn_constructor_kwargs={"config": config},
        required={"payload": "The body of the request, as JSON."},
    )


def _model_stages(config: OfflineProcessorConfig, values: dict[str, Any] | None) -> list[Stage]:
    """Return the stages of a model, all of which one class runs."""
    parameters = {
        "sampling_params": "Parameters of sampling, such as temperature and max_tokens.",
        "pooling_params": "Parameters of pooling, for embeddings.",
    }
    chosen = [
        ("ChatTemplateStage", config.chat.enabled, _MESSAGES),
        ("TokenizeStage", config.tokenizing, _PROMPT),
        ("vLLMEngineStage", True, _PROMPT),
        ("DetokenizeStage", config.detokenizing and config.task_type == "generate", {}),
    ]
    arguments = {"config": config, "template_values": values}
    return [
        Stage(
            name=name,
            fn=EngineStage,
            fn_constructor_kwargs=arguments,
            required=keys,
            optional=parameters,
        )
        for name, enabled, keys in chosen
        if enabled
    ]


def _unless_failed(function: RowFunction, row: dict[str, Any]) -> dict[str, Any]:
    """Return the result of `postprocess`, or the row itself if its inference failed."""
    if row[ERROR]:
        return row
    return {**function(row), ERROR: ""}
