"""Keys of the `info` that operators receive with every epoch and batch, and their values."""

from __future__ import annotations

from syncline.util.sgd.utils import BATCH_COUNT, NUM_SAMPLES

__all__ = [
    "BATCH_COUNT",
    "NCCL_TIMEOUT_S",
    "NUM_SAMPLES",
    "NUM_STEPS",
    "SCHEDULER_STEP",
    "SCHEDULER_STEP_BATCH",
    "SCHEDULER_STEP_EPOCH",
    "SCHEDULER_STEP_MANUAL",
    "USE_FP16",
    "VALID_SCHEDULER_STEP",
]

NUM_STEPS = "num_steps"
"""Number of batches that an epoch is limited to; None for all."""
SCHEDULER_STEP = "scheduler_step"
"""When learning-rate schedulers step: one of the next three, or None."""
SCHEDULER_STEP_BATCH = "batch"
SCHEDULER_STEP_EPOCH = "epoch"
SCHEDULER_STEP_MANUAL = "manual"
VALID_SCHEDULER_STEP = frozenset(
    {SCHEDULER_STEP_BATCH, SCHEDULER_STEP_EPOCH, SCHEDULER_STEP_MANUAL}
)
USE_FP16 = "__use_fp16__"
"""True if the trainer computes in mixed precision."""
NCCL_TIMEOUT_S = 1800.0
"""Seconds that a collective operation may take."""
