"""PyTorch training: the trainer, and functions for models, data and devices in training functions.

Files in the order in which data flows through them:
    trainer.py            `TorchTrainer`; its configuration and backend are in ../torch_backend.py
    model_use.py          check whether a training function trains a model
    process_group.py      the worker's side of the process group: rendezvous, joining, leaving
    random_generators.py  `enable_reproducibility`, isolated draws, seeds of batches
    device.py             `get_device(s)`, and moving batches to devices
    amp.py                mixed precision: `accelerate`, `prepare_optimizer`, `backward`
    automatic_snapshots.py  memory snapshots of prepared models and their optimizers
    model.py              `prepare_model`: device, DDP or FSDP
    input_check.py        the rank whose batch had a NaN
    mesh.py               device meshes: dimensions for data and for tensor parallelism
    fsdp_units.py         repeated blocks of a model, and activation checkpointing
    meta_init.py          memory and initial values for models on the meta device
    fsdp_options.py       options of "fsdp", and translation of those of FSDP1
    fsdp.py               sharding with FSDP2, one unit after the other
    samplers.py           sharding rule, samplers that yield a rank's share, and their epochs
    index_order.py        indices of a pass, from its beginning or from a position in it
    loader_state.py       position of a loader in a checkpoint
    stream_parts.py       parts of an `IterableDataset`, positions in them, their distribution
    stream_libraries.py   streams of any dataset, of Hugging Face `datasets` and of WebDataset
    stream_dataset.py     `StreamDataset`: passes that begin in the middle, batches with a position
    prepared_loader.py    `PreparedDataLoader`: a loader with resumable passes
    other_loaders.py      loaders of torchdata, WebDataset and Accelerate
    loader.py             `prepare_data_loader`: a rank's share of a DataLoader on its device
    checkpoint.py         `TorchCheckpoint`: checkpoints of models and state dicts
    predictor.py          `TorchPredictor`: predictions with the model of a checkpoint
"""

from syncline.train.torch.amp import accelerate, backward, prepare_optimizer
from syncline.train.torch.checkpoint import TorchCheckpoint
from syncline.train.torch.device import get_device, get_devices
from syncline.train.torch.loader import prepare_data_loader
from syncline.train.torch.model import prepare_model
from syncline.train.torch.predictor import TorchPredictor
from syncline.train.torch.random_generators import enable_reproducibility
from syncline.train.torch.trainer import TorchTrainer
from syncline.train.torch_backend import TorchConfig

__all__ = [
    "TorchCheckpoint",
    "TorchConfig",
    "TorchPredictor",
    "TorchTrainer",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]
