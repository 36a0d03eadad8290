"""Processors: configurations, HTTP requests with retries and rates, vLLM with a fake library."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from syncline.data.columnar import block
from syncline.data.llm import (
    ChatTemplateStageConfig,
    HttpRequestProcessorConfig,
    ProcessorConfig,
    SGLangEngineProcessorConfig,
    build_processor,
    vLLMEngineProcessorConfig,
)
from syncline.data.llm.http_requests import HttpRequestStage
from syncline.data.llm.processor import Processor
from syncline.data.llm.stages import EngineStage


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vLLMEngineProcessorConfig(model_source="m", task_type="score"), "task_type"),
        (lambda: vLLMEngineProcessorConfig(model_source="m", batch_size=0), "batch_size"),
        (lambda: vLLMEngineProcessorConfig(model_source="m", concurrency=(3, 2)), "concurrency"),
        (lambda: vLLMEngineProcessorConfig(model_source="m", concurrency=0), "concurrency"),
        (
            lambda: vLLMEngineProcessorConfig(model_source="m", prepare_multimodal_stage=True),
            "images in messages",
        ),
        (
            lambda: vLLMEngineProcessorConfig(model_source="m", dynamic_lora_loading_path="/x"),
            "LoRA",
        ),
        (lambda: HttpRequestProcessorConfig(url="u", qps=0), "qps"),
        (lambda: HttpRequestProcessorConfig(url="u", http_request_stage=False), "only stage"),
    ],
)
def test_wrong_configurations_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_stages_are_configured_in_several_ways() -> None:
    def names(**options: Any) -> list[str]:
        config = SGLangEngineProcessorConfig(model_source="m", **options)
        return build_processor(config).list_stage_names()

    whole = ["ChatTemplateStage", "TokenizeStage", "vLLMEngineStage", "DetokenizeStage"]
    assert names() == whole
    assert names(chat_template_stage=False, tokenize_stage={"enabled": False}) == whole[2:]
    assert names(apply_chat_template=False, detokenize=False) == whole[1:3]
    assert names(task_type="embed") == whole[:3]
    stage = ChatTemplateStageConfig(chat_template="x", chat_template_kwargs={"a": 1})
    config = vLLMEngineProcessorConfig(model_source="m", chat_template_stage=stage)
    assert config.chat.chat_template == "x"
    processor = build_processor(config, builder_kwargs={"chat_template_kwargs": {"b": 2}})
    first = processor.get_stage_by_name("ChatTemplateStage")
    assert "messages" in first.get_required_input_keys()
    assert first.fn_constructor_kwargs["template_values"] == {"b": 2}
    with pytest.raises(ValueError, match="no stage 'X'"):
        processor.get_stage_by_name("X")
    with pytest.raises(TypeError, match="chat_template_kwargs"):
        build_processor(HttpRequestProcessorConfig(url="u"), builder_kwargs={"x": 1})
    with pytest.raises(TypeError, match="does not configure a processor"):
        build_processor(ProcessorConfig())


class Handler(BaseHTTPRequestHandler):
    """Answers the doubled number of the payload; fails as often as the payload says."""

    failures: dict[int, int] = {}
    headers_seen: list[dict[str, str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.headers_seen.append(dict(self.headers))
        left = self.failures.setdefault(body["n"], body.get("failures", 0))
        self.failures[body["n"]] = left - 1
        answer = json.dumps({"double": 2 * body["n"], "list": body.get("list")}).encode()
        self.send_response(503 if left > 0 else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    Handler.failures.clear()
    Handler.headers_seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def answered(payloads: list[Any], url: str, **options: Any) -> list[Any]:
    stage = HttpRequestStage(HttpRequestProcessorConfig(url=url, **options))
    table = block.from_rows([{"payload": payload, "n": at} for at, payload in enumerate(payloads)])
    return block.row_list(stage(table))


def test_each_row_gets_its_answer(url: str) -> None:
    rows = answered(
        [{"n": n, "list": np.arange(n)} for n in (3, 1)], url, headers={"Authorization": "Bearer x"}
    )
    assert [(row["n"], row["http_response"]["double"]) for row in rows] == [(0, 6), (1, 2)]
    assert rows[0]["http_response"]["list"] == [0, 1, 2]
    (seen, _) = Handler.headers_seen
    assert (seen["Authorization"], seen["Content-Type"]) == ("Bearer x", "application/json")


def test_requests_are_retried_after_an_overload(url: str) -> None:
    options = {"max_retries": 2, "base_retry_wait_time_in_s": 0.001}
    (row,) = answered([{"n": 5, "failures": 2}], url, **options)
    assert row["http_response"]["double"] == 10
    with pytest.raises(RuntimeError, match="in 3 attempts: status 503"):
        answered([{"n": 6, "failures": 3}], url, **options)
    with pytest.raises(RuntimeError, match="in 1 attempts: URLError"):
        answered([{"n": 1}], "http://127.0.0.1:1/")
    with pytest.raises(ValueError, match="no `payload`"):
        HttpRequestStage(HttpRequestProcessorConfig(url=url))(block.from_rows([{"a": 1}]))


class Session:
    """A session of the program."""

    calls: list[Any] = []

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: Any) -> None: ...

    def post(self, url: str, *, headers: Any, data: Any) -> "Session.Call":
        self.calls.append((url, json.loads(data)))
        return Session.Call(json.loads(data))

    class Call:
        def __init__(self, body: Any) -> None:
            self.body, self.status = body, 200

        async def __aenter__(self) -> "Session.Call":
            return self

        async def __aexit__(self, *_: Any) -> None: ...

        async def json(self) -> Any:
            return self.body


def test_a_session_of_the_program_and_a_rate() -> None:
    rows = answered([{"n": 1}, {"n": 2}], "the url", session_factory=Session, qps=1000)
    assert [row["http_response"] for row in rows] == [{"n": 1}, {"n": 2}]
    assert [call[0] for call in Session.calls] == ["the url", "the url"]


class FakeVLLM(ModuleType):
    """The offline interface of vLLM."""

    def __init__(self) -> None:
        super().__init__("vllm")
        self.SamplingParams = lambda **params: params

        class LLM:
            def __init__(self, **arguments: Any) -> None:
                self.arguments = arguments

            def get_tokenizer(self) -> Any:
                class Tokenizer:
                    def __call__(self, text: str, add_special_tokens: bool) -> Any:
                        return {"input_ids": [0] * add_special_tokens + [len(text)]}

                    def apply_chat_template(self, messages: Any, **_: Any) -> str:
                        return "|".join(message["content"] for message in messages)

                return Tokenizer()

            def generate(self, prompts: Any, params: Any, use_tqdm: bool) -> list[Any]:
                return [
                    SimpleNamespace(
                        prompt_token_ids=prompt["prompt_token_ids"],
                        outputs=[SimpleNamespace(token_ids=[7], text=str(each))],
                    )
                    for prompt, each in zip(prompts, params, strict=True)
                ]

            def embed(self, prompts: Any, use_tqdm: bool) -> list[Any]:
                vector = SimpleNamespace(embedding=[0.5, 0.5])
                return [
                    SimpleNamespace(prompt_token_ids=prompt["prompt_token_ids"], outputs=vector)
                    for prompt in prompts
                ]

        self.LLM = LLM


def test_vllm_runs_the_model_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", FakeVLLM())
    config = vLLMEngineProcessorConfig(model_source="m", engine="vllm")
    rows = [
        {
            "messages": [{"role": "user", "content": "abc"}],
            "prompt": None,
            "sampling_params": {"max_tokens": 3},
        },
        {"messages": None, "prompt": "ab", "sampling_params": {"temperature": 0.0}},
    ]
    first, second = block.row_list(EngineStage(config)(block.from_rows(rows)))
    assert first["generated_text"] == str({"detokenize": True, "max_tokens": 3})
    assert second["generated_text"] == str({"detokenize": True, "temperature": 0.0})
    assert (first["prompt"], first["num_input_tokens"]) == ("abc", 1)  # the template adds tokens
    assert (second["num_input_tokens"], second["generated_tokens"]) == (2, [7])
    embedding = vLLMEngineProcessorConfig(model_source="m", engine="vllm", task_type="embed")
    (row,) = block.row_list(EngineStage(embedding)(block.from_rows([{"prompt": "a"}])))
    assert row["embeddings"].tolist() == [0.5, 0.5]


def test_functions_are_checked() -> None:
    with pytest.raises(ValueError, match="preprocess=3"):
        Processor(HttpRequestProcessorConfig(url="u"), [], preprocess=3)
