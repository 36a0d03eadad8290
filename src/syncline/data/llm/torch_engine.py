"""`TransformersEngine`: models of Transformers in batches, on a GPU if the worker has one.

Prompts are padded on the left. Requests with equal parameters run together. Embeddings are the last
hidden state of the last token (of the first token for encoders), with length 1.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from syncline.data.llm.engine import Engine, EngineOptions, Output, Request
from syncline.optional import load

logger = logging.getLogger("syncline")

_KNOWN_ARGUMENTS = frozenset(
    {"dtype", "max_model_len", "revision", "seed", "tokenizer", "trust_remote_code"}
)
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")
# Parameter of a request -> argument of `generate`.
_DIRECT = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "repetition_penalty": "repetition_penalty",
}
_SAMPLED = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}
_OTHERS = frozenset(
    {"detokenize", "ignore_eos", "n", "seed", "skip_special_tokens", "stop", "stop_token_ids"}
)
_MAX_TOKENS = 16
"""Generated tokens without `max_tokens`, as in vLLM."""


class TransformersEngine(Engine):
    """A model of Transformers.

    Args:
        options: Model, task and arguments.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._transformers = load(
            "transformers", purpose="data.llm", install="syncline[huggingface]"
        )
        self._options = options
        given = options.arguments
        ignored = sorted(set(given) - _KNOWN_ARGUMENTS - set(_PARALLEL) - {"task_type"})
        if ignored:
            logger.warning("Transformers ignores the engine arguments %s.", ", ".join(ignored))
        source: dict[str, Any] = {
            name: given[name] for name in ("revision", "trust_remote_code") if name in given
        }
        self._tokenizer = self._transformers.AutoTokenizer.from_pretrained(
            given.get("tokenizer") or options.model, **source
        )
        self._tokenizer.padding_side = "left"
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token or self._tokenizer.unk_token
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = self._load(source)
        if given.get("seed") is not None:
            torch.manual_seed(given["seed"])

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

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[Output]:
        """Return the outputs in the order of the requests."""
        prompts = [self._prompt_tokens(request) for request in requests]
        outputs: list[Output | None] = [None] * len(requests)
        groups: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            key = json.dumps(request.params, sort_keys=True, default=str)
            groups.setdefault(key, []).append(index)
        for indices in groups.values():
            batch = [prompts[index] for index in indices]
            params = requests[indices[0]].params
            made = (
                self._generate(batch, params)
                if self._options.task == "generate"
                else self._vectors(batch)
            )
            for index, output in zip(indices, made, strict=True):
                outputs[index] = output
        return [output for output in outputs if output is not None]

    def _load(self, source: dict[str, Any]) -> Any:
        kind = {
            "generate": "AutoModelForCausalLM",
            "embed": "AutoModel",
            "classify": "AutoModelForSequenceClassification",
        }[self._options.task]
        dtype = self._options.arguments.get("dtype", "auto")
        if dtype == "auto" and self._device.type == "cpu":
            dtype = "float32"  # half precision is slow on most CPUs
        splits = any(self._options.arguments.get(name, 1) > 1 for name in _PARALLEL)
        model = getattr(self._transformers, kind).from_pretrained(
            self._options.model,
            dtype=dtype if dtype == "auto" else getattr(torch, str(dtype).removeprefix("torch.")),
            **({"device_map": "auto"} if splits else {}),
            **source,
        )
        if self._options.task == "classify" and model.config.pad_token_id is None:
            model.config.pad_token_id = self._tokenizer.pad_token_id
        return (model if splits else model.to(self._device)).eval()

    def _prompt_tokens(self, request: Request) -> list[int]:
        if request.tokens is not None:
            tokens = [int(token) for token in request.tokens]
        else:
            tokens = self._tokenizer(request.prompt, add_special_tokens=not request.templated)[
                "input_ids"
            ]
        longest = self._options.arguments.get("max_model_len")
        if longest is not None and len(tokens) > longest:
            raise ValueError(
                f"a prompt has {len(tokens)} tokens, more than `max_model_len={longest}`: "
                "shorten it"
            )
        if not tokens:
            raise ValueError("a prompt has no tokens: pass a text that is not empty")
        return tokens

    def _padded(self, prompts: list[list[int]]) -> dict[str, torch.Tensor]:
        """Return tokens and mask `(rows, longest prompt)`, padded on the left."""
        length = max(map(len, prompts))
        shape = (len(prompts), length)
        tokens = torch.full(shape, self._tokenizer.pad_token_id or 0)
        mask = torch.zeros(shape, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, length - len(prompt) :] = torch.tensor(prompt)
            mask[row, length - len(prompt) :] = 1
        device = self._model.device
        return {"input_ids": tokens.to(device), "attention_mask": mask.to(device)}

    def _generate(self, prompts: list[list[int]], params: dict[str, Any]) -> list[Output]:
        arguments, ends = self._arguments(params, max(map(len, prompts)))
        if params.get("seed") is not None:
            torch.manual_seed(int(params["seed"]))
        generated = self._model.generate(**self._padded(prompts), **arguments)
        start = max(map(len, prompts))
        return [
            self._output(prompt, row[start:].tolist(), ends, params)
            for prompt, row in zip(prompts, generated.cpu(), strict=True)
        ]

    def _arguments(
        self, params: dict[str, Any], prompt_length: int
    ) -> tuple[dict[str, Any], set[int]]:
        """Return the arguments of `generate`, and the tokens that end a text."""
        unknown = sorted(set(params) - set(_DIRECT) - set(_SAMPLED) - _OTHERS)
        if unknown or params.get("n", 1) != 1:
            named = ", ".join(unknown) or f"n={params['n']}"
            raise ValueError(
                f"sampling_params: Transformers does not support {named}; install vLLM, or use "
                f"{', '.join(sorted({*_DIRECT, *_SAMPLED, *_OTHERS} - {'n'}))}"
            )
        arguments: dict[str, Any] = {
            name: params[given] for given, name in _DIRECT.items() if given in params
        }
        arguments.setdefault("max_new_tokens", _MAX_TOKENS)
        longest = self._options.arguments.get("max_model_len")
        if longest is not None:
            room = max(1, longest - prompt_length)
            arguments["max_new_tokens"] = min(arguments["max_new_tokens"], room)
        temperature = float(params.get("temperature", 1.0))
        arguments["do_sample"] = temperature > 0
        if temperature > 0:
            arguments |= {
                name: params[given] for given, name in _SAMPLED.items() if given in params
            }
            if arguments.get("top_k", 0) < 1:
                arguments["top_k"] = 0  # all tokens
        ends = {int(token) for token in params.get("stop_token_ids") or ()}
        if not params.get("ignore_eos"):
            own = self._model.generation_config.eos_token_id
            ends |= set(own if isinstance(own, list) else [] if own is None else [own])
        arguments["eos_token_id"] = sorted(ends) or None
        arguments["pad_token_id"] = self._tokenizer.pad_token_id
        if params.get("stop"):
            arguments |= {"stop_strings": _texts(params["stop"]), "tokenizer": self._tokenizer}
        return arguments, ends

    def _output(
        self, prompt: list[int], tokens: list[int], ends: set[int], params: dict[str, Any]
    ) -> Output:
        end = next((at for at, token in enumerate(tokens) if token in ends), None)
        if end is not None:
            tokens = tokens[: end + 1]
        while params.get("stop") and tokens and tokens[-1] == self._tokenizer.pad_token_id:
            tokens.pop()  # other rows of the batch took longer
        text = ""
        if self._options.detokenize and params.get("detokenize", True):
            text = self._tokenizer.decode(
                tokens, skip_special_tokens=params.get("skip_special_tokens", True)
            )
            found = [text.find(stop) for stop in _texts(params.get("stop") or ())]
            text = text[: min((at for at in found if at >= 0), default=len(text))]
        return Output(prompt_tokens=prompt, tokens=tokens, text=text)

    def _vectors(self, prompts: list[list[int]]) -> list[Output]:
        """Return embeddings, or the probabilities of the classes."""
        inputs = self._padded(prompts)
        result = self._model(**inputs)
        if self._options.task == "classify":
            vectors = torch.softmax(result.logits.float(), dim=-1)
        else:
            hidden = result.last_hidden_state.float()
            first = inputs["attention_mask"].argmax(dim=1)
            decodes = not getattr(self._model.config, "is_encoder_decoder", False) and (
                self._model.config.architectures or [""]
            )[0].endswith(("CausalLM", "LMHeadModel"))
            rows = torch.arange(len(prompts), device=hidden.device)
            chosen = hidden[:, -1] if decodes else hidden[rows, first]
            vectors = torch.nn.functional.normalize(chosen, dim=-1)
        arrays: np.ndarray = vectors.cpu().numpy()
        return [
            Output(prompt_tokens=prompt, embedding=vector)
            for prompt, vector in zip(prompts, arrays, strict=True)
        ]


def _texts(stop: str | Sequence[str]) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop)
