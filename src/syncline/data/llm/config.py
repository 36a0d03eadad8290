"""Configurations of processors and of their stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from syncline.suggestions import suggest_arguments

Concurrency: TypeAlias = int | tuple[int, int]
"""Number of workers, or their minimum and maximum."""
TaskType: TypeAlias = Literal["generate", "embed", "classify"]
StageT = TypeVar("StageT", bound="StageConfig")


@suggest_arguments
@dataclass(kw_only=True)
class StageConfig:
    """Options of one stage. Stages of a model run in the workers of its engine, so their resources
    are those of the processor.
    """

    enabled: bool = True
    """Run the stage."""
    model_source: str | None = None
    """Model whose tokenizer is used; None for the processor's."""
    batch_size: int | None = None
    """Accepted without effect: the batch of the processor counts."""
    concurrency: Concurrency | None = None
    """Accepted without effect."""
    runtime_env: dict[str, Any] | None = None
    """Accepted without effect: the environment of the processor counts."""
    num_cpus: float | None = None
    """Accepted without effect."""
    memory: float | None = None
    """Accepted without effect."""


@suggest_arguments
@dataclass(kw_only=True)
class ChatTemplateStageConfig(StageConfig):
    """Makes a prompt of `messages`."""

    chat_template: str | None = None
    """Template in Jinja; None for the tokenizer's."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Further values for the template."""


@suggest_arguments
@dataclass(kw_only=True)
class TokenizerStageConfig(StageConfig):
    """Converts `prompt` to tokens; if disabled, rows need `tokenized_prompt`, or the engine does
    it.
    """


@suggest_arguments
@dataclass(kw_only=True)
class DetokenizeStageConfig(StageConfig):
    """Converts tokens to `generated_text`."""


@suggest_arguments
@dataclass(kw_only=True)
class PrepareMultimodalStageConfig(StageConfig):
    """Loads images of messages: not supported; accepted if disabled."""

    model_config_kwargs: dict[str, Any] | None = None
    chat_template_content_format: str = "string"
    apply_sys_msg_formatting: bool = False


@suggest_arguments
@dataclass(kw_only=True)
class HttpRequestStageConfig(StageConfig):
    """Sends a request for each row."""


@suggest_arguments
@dataclass(kw_only=True)
class ProcessorConfig:
    """Options of every processor."""

    batch_size: int = 32
    """Rows that a worker processes together."""
    accelerator_type: str | None = None
    """Accepted without effect: a model runs on a GPU if the machine has one."""
    concurrency: Concurrency = 1
    """Number of workers, or their minimum and maximum."""

    def __post_init__(self) -> None:
        if isinstance(self.batch_size, bool) or self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size!r}: pass a number of at least 1")
        sizes = self.concurrency if isinstance(self.concurrency, tuple) else (self.concurrency,)
        if (
            len(sizes) > 2
            or not all(isinstance(size, int) and size > 0 for size in sizes)
            or list(sizes) != sorted(sizes)
        ):
            raise ValueError(
                f"concurrency={self.concurrency!r}: pass a number of workers, or (minimum, maximum)"
            )


@suggest_arguments
@dataclass(kw_only=True)
class OfflineProcessorConfig(ProcessorConfig):
    """Options of processors that run a model. A stage takes True, False, a dictionary of options,
    or its configuration.
    """

    model_source: str
    """Name of a model of Hugging Face, or a directory."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the engine. Transformers takes `dtype`, `trust_remote_code`, `revision`,
    `tokenizer`, `max_model_len`, `seed` and `tensor_parallel_size`, and ignores others.
    """
    task_type: TaskType = "generate"
    """ "generate" for text, "embed" for vectors, "classify" for probabilities of classes."""
    runtime_env: dict[str, Any] | None = None
    """Environment of the workers."""
    max_pending_requests: int | None = None
    """Accepted without effect."""
    max_concurrent_batches: int = 8
    """Accepted without effect: a worker runs one batch at a time."""
    max_tasks_in_flight_per_actor: int | None = None
    """Maximum blocks queued at one worker; None lets the executor choose."""
    should_continue_on_error: bool = False
    """Keep rows whose inference fails, with the error in the column `__inference_error__`; they
    bypass `postprocess`. Otherwise an error ends the execution.
    """
    chat_template_stage: bool | dict[str, Any] | ChatTemplateStageConfig = True
    tokenize_stage: bool | dict[str, Any] | TokenizerStageConfig = True
    detokenize_stage: bool | dict[str, Any] | DetokenizeStageConfig = True
    prepare_multimodal_stage: bool | dict[str, Any] | PrepareMultimodalStageConfig = False
    apply_chat_template: bool | None = None
    """Older form of `chat_template_stage`."""
    chat_template: str | None = None
    """Older form of `chat_template_stage={"chat_template": …}`."""
    tokenize: bool | None = None
    """Older form of `tokenize_stage`."""
    detokenize: bool | None = None
    """Older form of `detokenize_stage`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task_type not in get_args(TaskType):
            raise ValueError(
                f"task_type={self.task_type!r}: choose one of {', '.join(get_args(TaskType))}"
            )
        if resolved(self.prepare_multimodal_stage, PrepareMultimodalStageConfig).enabled:
            raise ValueError(
                "prepare_multimodal_stage: images in messages are not supported; load them in "
                "`preprocess` and run the model in `map_batches`"
            )

    @property
    def chat(self) -> ChatTemplateStageConfig:
        """Options of the chat template."""
        chosen = resolved(self.chat_template_stage, ChatTemplateStageConfig)
        if self.apply_chat_template is not None:
            chosen.enabled = self.apply_chat_template
        chosen.chat_template = chosen.chat_template or self.chat_template
        return chosen

    @property
    def tokenizing(self) -> bool:
        """True if the tokenizer stage runs."""
        chosen = resolved(self.tokenize_stage, TokenizerStageConfig).enabled
        return chosen if self.tokenize is None else self.tokenize

    @property
    def detokenizing(self) -> bool:
        """True if tokens become text."""
        chosen = resolved(self.detokenize_stage, DetokenizeStageConfig).enabled
        return chosen if self.detokenize is None else self.detokenize


@suggest_arguments
@dataclass(kw_only=True)
class vLLMEngineProcessorConfig(OfflineProcessorConfig):
    """A model that vLLM runs where it is installed, and Transformers elsewhere."""

    log_engine_metrics: bool = True
    """Accepted without effect."""
    dynamic_lora_loading_path: str | None = None
    """LoRA adapters are not supported: None."""
    placement_group_config: dict[str, Any] | None = None
    """Accepted without effect: a worker gets as many GPUs as the model is split over."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """ "auto" for vLLM if it is installed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dynamic_lora_loading_path is not None:
            raise ValueError(
                f"dynamic_lora_loading_path={self.dynamic_lora_loading_path!r}: LoRA adapters are "
                "not supported; merge the adapter into the model"
            )


@suggest_arguments
@dataclass(kw_only=True)
class SGLangEngineProcessorConfig(OfflineProcessorConfig):
    """A model for SGLang, which Transformers runs."""


@suggest_arguments
@dataclass(kw_only=True)
class HttpRequestProcessorConfig(ProcessorConfig):
    """Sends the `payload` of each row to a URL; the reply is the column `http_response`."""

    batch_size: int = 64
    """Rows whose requests are sent together."""
    url: str
    """Address for POST requests."""
    headers: dict[str, Any] | None = None
    """Headers besides `Content-Type: application/json`."""
    qps: float | None = None
    """Maximum requests per second of a worker; None for no limit."""
    max_retries: int = 0
    """Further attempts after an unanswered request, or a status 408, 429, 502, 503 or 504."""
    base_retry_wait_time_in_s: float = 1
    """Seconds before the first retry; they double with each one."""
    session_factory: Callable[[], Any] | None = None
    """Returns a session like `aiohttp.ClientSession`; None for one of the standard library."""
    http_request_stage: bool | dict[str, Any] | HttpRequestStageConfig = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not resolved(self.http_request_stage, HttpRequestStageConfig).enabled:
            raise ValueError("http_request_stage: it is the only stage, so it cannot be disabled")
        if self.qps is not None and self.qps <= 0:
            raise ValueError(f"qps={self.qps}: pass a number above 0, or None")


def resolved(given: bool | Mapping[str, Any] | StageConfig, kind: type[StageT]) -> StageT:
    """Return the configuration of a stage."""
    if isinstance(given, bool):
        return kind(enabled=given)
    if isinstance(given, Mapping):
        return kind(**given)
    if isinstance(given, kind):
        return kind(**{each.name: getattr(given, each.name) for each in fields(given)})
    raise ValueError(
        f"{given!r} does not configure a stage: pass a bool, a dictionary, or a {kind.__name__}"
    )
