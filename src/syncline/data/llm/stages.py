"""What runs in the workers of a processor: a class for `map_batches` on tables."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import columns
from syncline.data.llm.config import OfflineProcessorConfig, vLLMEngineProcessorConfig
from syncline.data.llm.engine import Engine, EngineOptions, Output, Request
from syncline.data.llm.vllm_engine import VLLMEngine
from syncline.optional import load

ERROR = "__inference_error__"
"""Column of the error of a row's inference."""


class EngineStage:
    """Runs the model of a processor on batches: chat template, tokenizer, engine, text.

    Args:
        config: The processor's configuration.
        template_values: Further values for the chat template.
    """

    def __init__(
        self, config: OfflineProcessorConfig, template_values: dict[str, Any] | None = None
    ) -> None:
        self._config = config
        self._chat = config.chat
        self._template_values = {
            **(self._chat.chat_template_kwargs or {}),
            **(template_values or {}),
        }
        self._engine = _loaded(config)
        self._requests = 0

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the table with the columns of the outputs."""
        rows = blocks.row_list(table)
        start = time.perf_counter()
        found, errors = self._run(rows)
        seconds = time.perf_counter() - start
        made: dict[str, Sequence[Any]] = {
            "prompt": [request.prompt if request else None for request, _ in found],
            "num_input_tokens": [len(output.prompt_tokens) for _, output in found],
            "generated_tokens": [output.tokens for _, output in found],
            "generated_text": [output.text for _, output in found],
            "num_generated_tokens": [len(output.tokens) for _, output in found],
            "embeddings": [output.embedding for _, output in found],
            "params": [str(request.params) if request else "" for request, _ in found],
            "request_id": list(range(self._requests, self._requests + len(rows))),
            "batch_uuid": [uuid.uuid4().hex] * len(rows),
            "time_taken_llm": [seconds] * len(rows),
        }
        self._requests += len(rows)
        if self._config.should_continue_on_error:
            made[ERROR] = errors
        return with_columns(table, made)

    def _run(
        self, rows: list[dict[str, Any]]
    ) -> tuple[list[tuple[Request | None, Output]], list[str]]:
        """Return the request and output of each row, and its error, "" for none."""
        if not self._config.should_continue_on_error:
            requests = [self._request(row) for row in rows]
            return list(zip(requests, self._engine.run(requests), strict=True)), [""] * len(rows)
        try:
            requests = [self._request(row) for row in rows]
            return list(zip(requests, self._engine.run(requests), strict=True)), [""] * len(rows)
        except Exception:
            return self._one_by_one(rows)

    def _one_by_one(
        self, rows: list[dict[str, Any]]
    ) -> tuple[list[tuple[Request | None, Output]], list[str]]:
        found: list[tuple[Request | None, Output]] = []
        errors: list[str] = []
        for row in rows:
            try:
                request = self._request(row)
                found.append((request, self._engine.run([request])[0]))
                errors.append("")
            except Exception as error:
                found.append((None, Output(prompt_tokens=[])))
                errors.append(f"{type(error).__name__}: {error}")
        return found, errors

    def _request(self, row: dict[str, Any]) -> Request:
        """Return the request of a row. Fields that are null are missing: rows share columns."""
        messages = row.get("messages")
        templated = self._chat.enabled and messages is not None
        prompt: str | None = row.get("prompt")
        if templated and messages is not None:
            conversation = [without_nulls(message) for message in messages]
            prompt = self._engine.chat_prompt(
                conversation, self._chat.chat_template, self._template_values
            )
        tokens = row.get("tokenized_prompt")
        if prompt is None and tokens is None:
            wanted = "`messages`" if self._chat.enabled else "`prompt` or `tokenized_prompt`"
            raise ValueError(
                f"a row has no {wanted}: let `preprocess` return it; the row has "
                f"{', '.join(map(repr, row)) or 'no columns'}"
            )
        task = self._config.task_type
        params = row.get("sampling_params" if task == "generate" else "pooling_params") or {}
        return Request(
            prompt=prompt,
            tokens=None if tokens is None else [int(token) for token in tokens],
            templated=templated,
            params=without_nulls(params),
        )


def without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary without the keys that it has only because other rows have them."""
    return {name: value for name, value in values.items() if value is not None}


def with_columns(table: pa.Table, made: dict[str, Sequence[Any]]) -> pa.Table:
    """Return the table with columns of Python values added or replaced."""
    found = dict(zip(table.column_names, table.columns, strict=True))
    found |= {name: columns.from_values(name, list(values)) for name, values in made.items()}
    return blocks.from_columns(found, table.num_rows)


def _loaded(config: OfflineProcessorConfig) -> Engine:
    """Load the model."""
    options = EngineOptions(
        model=config.model_source,
        task=config.task_type,
        arguments=dict(config.engine_kwargs),
        detokenize=config.detokenizing,
    )
    chosen = config.engine if isinstance(config, vLLMEngineProcessorConfig) else "transformers"
    if chosen == "vllm" or (chosen == "auto" and find_spec("vllm") is not None):
        return VLLMEngine(options)
    module = load(
        "syncline.data.llm.torch_engine",
        purpose="data.llm",
        install="syncline[huggingface]",
        library="torch",
    )
    engine: Engine = module.TransformersEngine(options)
    return engine
