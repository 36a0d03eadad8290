"""Language models on datasets: batch inference and HTTP requests, with the API of `ray.data.llm`.

    config = vLLMEngineProcessorConfig(model_source="Qwen/Qwen3-0.6B", batch_size=32)
    processor = build_processor(
        config,
        preprocess=lambda row: {"messages": [{"role": "user", "content": row["question"]}]},
        postprocess=lambda row: {"answer": row["generated_text"]},
    )
    answers = processor(ds)

Files, in the order in which data flows through them: `config` (configurations), `processor` (stages
on a dataset), `stages` (what runs in the workers), `engine` (requests and outputs of an engine),
`torch_engine` (Transformers, on CPUs and GPUs), `vllm_engine` (vLLM, where it is installed) and
`http_requests`.

Not covered: deployments of `serve` as a stage, images in messages, LoRA adapters.
"""

from syncline.data.llm.config import (
    ChatTemplateStageConfig,
    DetokenizeStageConfig,
    HttpRequestProcessorConfig,
    HttpRequestStageConfig,
    OfflineProcessorConfig,
    PrepareMultimodalStageConfig,
    ProcessorConfig,
    SGLangEngineProcessorConfig,
    TokenizerStageConfig,
    vLLMEngineProcessorConfig,
)
from syncline.data.llm.processor import Processor, build_llm_processor, build_processor

__all__ = [
    "ChatTemplateStageConfig",
    "DetokenizeStageConfig",
    "HttpRequestProcessorConfig",
    "HttpRequestStageConfig",
    "OfflineProcessorConfig",
    "PrepareMultimodalStageConfig",
    "Processor",
    "ProcessorConfig",
    "SGLangEngineProcessorConfig",
    "TokenizerStageConfig",
    "build_llm_processor",
    "build_processor",
    "vLLMEngineProcessorConfig",
]
