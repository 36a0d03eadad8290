"""PyTorch training: the trainer, and what a training function calls for its model, its data and its devices.

Files in the order in which a run meets them:
    trainer.py          `TorchTrainer`: what the program makes and fits
    ../torch_backend.py `TorchConfig`, and the backend that makes the workers one process group
    process_group.py    the worker's side of that: rendezvous, joining, leaving
    reproducibility.py  `enable_reproducibility`
    device.py           `get_device(s)`; moving batches
    amp.py              mixed precision: `accelerate`, `prepare_optimizer`, `backward`
    model.py            `prepare_model`: device, DDP or FSDP
    sharding.py         which positions of a sampler belong to which rank (pure)
    samplers.py         torch samplers made of that
    loader.py           `prepare_data_loader`: a rank's share of a DataLoader, on the rank's device
    checkpoint.py       `TorchCheckpoint`: models and state dicts as checkpoints
    predictor.py        `TorchPredictor`: a checkpoint's model applied to batches
"""

from syncline.train.torch.amp import accelerate, backward, prepare_optimizer
from syncline.train.torch.checkpoint import TorchCheckpoint
from syncline.train.torch.device import get_device, get_devices
from syncline.train.torch.loader import prepare_data_loader
from syncline.train.torch.model import prepare_model
from syncline.train.torch.predictor import TorchPredictor
from syncline.train.torch.reproducibility import enable_reproducibility
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
