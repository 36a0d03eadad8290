"""`VLLMEngine`: models that vLLM runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncline.data.llm.engine import Engine, EngineOptions, Output, Request
from syncline.optional import load


class VLLMEngine(Engine):
    """A model of vLLM, in its offline interface.

    Args:
        options: Model, task and arguments of `vllm.LLM`.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._vllm = load("vllm", purpose="data.llm", install="vllm")
        self._options = options
        arguments = {
            name: value for name, value in options.arguments.items() if name != "task_type"
        }
        if options.task != "generate":
            arguments.setdefault("runner", "pooling")
        self._llm = self._vllm.LLM(model=options.model, **arguments)
        self._tokenizer = self._llm.get_tokenizer()

    def chat_prompt(
        self, messages: list[dict[str, Any]], template: str | None, values: dict[str, Any]
    ) -> str:
        """Return the prompt of a conversation."""
        asks = messages[-1]["role"] == "user"
        prompt: str = self._tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            chat_template=template,
            add_generation_prompt=asks,
            continue_final_message=not asks,
            **values,
        )
        return prompt

    def run(self, requests: Sequence[Request]) -> list[Output]:
        """Return the outputs in the order of the requests."""
        prompts = [{"prompt_token_ids": self._prompt_tokens(request)} for request in requests]
        if self._options.task == "generate":
            params = [self._sampling(request) for request in requests]
            return [
                Output(
                    prompt_tokens=list(made.prompt_token_ids),
                    tokens=list(made.outputs[0].token_ids),
                    text=made.outputs[0].text,
                )
                for made in self._llm.generate(prompts, params, use_tqdm=False)
            ]
        call = self._llm.embed if self._options.task == "embed" else self._llm.classify
        name = "embedding" if self._options.task == "embed" else "probs"
        return [
            Output(
                prompt_tokens=list(made.prompt_token_ids),
                embedding=np.asarray(getattr(made.outputs, name), np.float32),
            )
            for made in call(prompts, use_tqdm=False)
        ]

    def _prompt_tokens(self, request: Request) -> list[int]:
        if request.tokens is not None:
            return [int(token) for token in request.tokens]
        tokens: list[int] = self._tokenizer(
            request.prompt, add_special_tokens=not request.templated
        )["input_ids"]
        return tokens

    def _sampling(self, request: Request) -> Any:
        params = {"detokenize": self._options.detokenize, **request.params}
        return self._vllm.SamplingParams(**params)
