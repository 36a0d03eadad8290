"""PyTorch training: the trainer, and what a training function calls for its model, its data and its
devices.

Files in the order in which a run meets them:
    trainer.py          `TorchTrainer`: what the program makes and fits
    ../torch_backend.py `TorchConfig`, and the backend that makes the workers one process group
    process_group.py    the worker's side of that: rendezvous, joining, leaving
    reproducibility.py  `enable_reproducibility`
    device.py           `get_device(s)`; moving batches
    amp.py              mixed precision: `accelerate`, `prepare_optimizer`, `backward`
    model.py            `prepare_model`: device, DDP or FSDP
    mesh.py             device meshes: dimensions for data and for tensor parallelism, equal beginnings
    units.py            the repeated blocks of a model; recomputing them in the backward pass
    materialize.py      models of the meta device get memory and first values
    fsdp_options.py     what "fsdp" may be told; FSDP1's options translated
    fsdp.py             sharding with FSDP2, unit by unit
    sharding.py         which positions of a sampler belong to which rank (pure)
    streams.py          random numbers that draw apart from the program's
    samplers.py         torch samplers made of that, and their epochs
    orders.py           the indices of a loader's pass, from its beginning or from any place in it
    places.py           how far a loader is, as checkpoints keep it (pure)
    worker_seeds.py     random numbers in the worker processes of loaders, by batch
    transfer.py         batches on their way to a device
    prepared_loader.py  `PreparedDataLoader`: its passes go on where they were
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
