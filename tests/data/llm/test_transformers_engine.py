"""Models of Transformers in processors: prompts, sampling, embeddings, classes, errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers

import syncline
from syncline import data
from syncline.data.columnar import block
from syncline.data.llm import build_llm_processor, build_processor, vLLMEngineProcessorConfig
from syncline.data.llm.stages import ERROR, EngineStage
from tests.data.llm.tiny_models import WORDS, saved_model

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_model(tmp_path_factory.mktemp("llama"))


def run(rows: list[dict[str, Any]], model: str, **options: Any) -> list[dict[str, Any]]:
    config = vLLMEngineProcessorConfig(model_source=model, engine="transformers", **options)
    return block.row_list(EngineStage(config)(block.from_rows(rows)))


def greedy(model: str, tokens: list[int], count: int) -> list[int]:
    """Return the tokens that plain Transformers generates."""
    own = transformers.AutoModelForCausalLM.from_pretrained(model).eval()
    with torch.inference_mode():
        generated = own.generate(
            torch.tensor([tokens]), max_new_tokens=count, do_sample=False, eos_token_id=None
        )
    return generated[0, len(tokens) :].tolist()


def test_prompts_of_a_batch_give_the_tokens_of_plain_transformers(model: str) -> None:
    params = {"temperature": 0, "max_tokens": 5, "ignore_eos": True}
    prompts = ["one two", "three", "four one two three"]
    rows = run([{"prompt": prompt, "sampling_params": params} for prompt in prompts], model)
    for row, prompt in zip(rows, prompts, strict=True):
        tokens = [WORDS.index(word) for word in prompt.split()]
        assert row["generated_tokens"] == greedy(model, tokens, 5)
        assert (row["num_input_tokens"], row["num_generated_tokens"]) == (len(tokens), 5)
        assert row["prompt"] == prompt


def test_conversations_become_prompts(model: str) -> None:
    params = {"temperature": 0.0, "max_tokens": 2}
    asked = [{"role": "user", "content": "one two"}]
    begun = [*asked, {"role": "assistant", "content": "three"}]
    rows = run([{"messages": each, "sampling_params": params} for each in (asked, begun)], model)
    assert rows[0]["prompt"] == "user : one two assistant :"
    assert rows[1]["prompt"].rstrip() == "user : one two assistant : three"
    own = run([{"messages": asked}], model, chat_template_stage={"chat_template": "{{ 'four' }}"})
    assert own[0]["prompt"] == "four"
    with pytest.raises(ValueError, match="no `prompt` or `tokenized_prompt`"):
        run([{"messages": asked}], model, chat_template_stage=False)


def test_parameters_of_sampling(model: str) -> None:
    tokenized = {"tokenized_prompt": [6, 7]}
    drawn = {"temperature": 1.0, "max_tokens": 8, "ignore_eos": True, "seed": 3, "top_k": -1}
    first, again = (run([{**tokenized, "sampling_params": drawn}], model) for _ in range(2))
    assert first[0]["generated_tokens"] == again[0]["generated_tokens"]
    likely = greedy(model, [6, 7], 8)
    stopped = {"temperature": 0, "max_tokens": 8, "stop_token_ids": [likely[2]], "ignore_eos": True}
    (row,) = run([{**tokenized, "sampling_params": stopped}], model)
    assert row["generated_tokens"] == likely[: likely.index(likely[2]) + 1]
    (row,) = run([{**tokenized, "sampling_params": {"detokenize": False}}], model)
    assert row["generated_text"] == ""
    assert len(row["generated_tokens"]) <= 16
    for wrong in ({"logprobs": 2}, {"n": 2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            run([{**tokenized, "sampling_params": wrong}], model)


def test_prompts_that_are_too_long_are_errors_or_rows_with_one(model: str) -> None:
    rows = [{"prompt": "one two three four", "n": 1}, {"prompt": "one", "n": 2}]
    limits = {"engine_kwargs": {"max_model_len": 3}}
    with pytest.raises(ValueError, match="4 tokens, more than `max_model_len=3`"):
        run(rows, model, **limits)
    bad, good = run(rows, model, should_continue_on_error=True, **limits)
    assert "max_model_len" in bad[ERROR]
    assert (bad["generated_text"], bad["n"]) == ("", 1)
    assert good[ERROR] == ""
    assert 1 <= len(good["generated_tokens"]) <= 2


def test_embeddings_and_classes(tmp_path: Path, model: str) -> None:
    rows = run([{"prompt": "one two"}, {"prompt": "three"}], model, task_type="embed")
    hidden = transformers.AutoModel.from_pretrained(model).eval()
    with torch.inference_mode():
        last = hidden(torch.tensor([[6, 7]])).last_hidden_state[0, -1]
    np.testing.assert_allclose(rows[0]["embeddings"], last / last.norm(), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows[1]["embeddings"]), 1, atol=1e-5)
    classes = saved_model(tmp_path, "LlamaForSequenceClassification", num_labels=3)
    (row,) = run([{"prompt": "one"}], classes, task_type="classify")
    assert row["embeddings"].shape == (3,)
    np.testing.assert_allclose(row["embeddings"].sum(), 1, atol=1e-5)


@pytest.fixture
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@pytest.mark.usefixtures("engine")
def test_a_dataset_is_processed_in_a_worker(model: str) -> None:
    assert build_llm_processor is build_processor
    processor = build_processor(
        vLLMEngineProcessorConfig(
            model_source=model,
            engine="transformers",
            batch_size=2,
            should_continue_on_error=True,
            engine_kwargs={"max_model_len": 8},
        ),
        preprocess=lambda row: {
            "id": row["id"],
            "messages": [{"role": "user", "content": "one " * (1 + 9 * (row["id"] == 2))}],
            "sampling_params": {"temperature": 0, "max_tokens": 3},
        },
        postprocess=lambda row: {"id": row["id"], "answer": row["generated_text"]},
    )
    assert processor.list_stage_names() == [
        "ChatTemplateStage",
        "TokenizeStage",
        "vLLMEngineStage",
        "DetokenizeStage",
    ]
    rows = processor(data.range(4)).take_all()
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    assert [bool(row[ERROR]) for row in rows] == [False, False, True, False]
    assert rows[0]["answer"] == rows[1]["answer"]
    assert isinstance(rows[0]["answer"], str)
    assert pa.types.is_string(processor(data.range(1)).schema().base_schema.field("answer").type)
