"""Training with Lightning's own strategy in an environment made by torchrun."""

import logging
import sys
import warnings

import lightning
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Sums(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        features, target = batch
        return torch.nn.functional.mse_loss(self.linear(features), target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0, verbose=False)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[1],
)
model = Sums()
trainer.fit(model, loader)
rank = trainer.global_rank
print(f"[{rank}] {TorchElasticEnvironment.detect()} {trainer.world_size} {trainer.global_step}")
print(f"[{rank}] weights {[round(value, 6) for value in model.linear.weight[0].tolist()]}")
