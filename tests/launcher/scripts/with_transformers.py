"""Training of a tiny, randomly initialised model with the Trainer of Transformers."""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)
from transformers.utils import logging

logging.set_verbosity_error()
torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)
tokens = torch.randint(0, 50, (64, 8))
rows = [{"input_ids": row, "labels": int(row.sum()) % 2} for row in tokens]
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    per_device_train_batch_size=8,
    max_steps=4,
    use_cpu=True,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    logging_strategy="no",
    seed=3,
)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows)
trainer.remove_callback(PrinterCallback)
result = trainer.train()
rank = int(os.environ["RANK"])
print(f"[{rank}] steps {result.global_step} loss {result.training_loss:.6f}")
print(f"[{rank}] processes {arguments.world_size} {arguments.parallel_mode}")
