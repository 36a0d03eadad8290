"""`DefaultBCTorchRLModule`: a policy without a value function."""

from __future__ import annotations

from syncline.rl.columns.names import Columns
from syncline.rl.modules.rl_module import Batch
from syncline.rl.modules.torch.catalog import PPOCatalog
from syncline.rl.modules.torch.models import ENCODER_OUT
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Network, Tree


class BCCatalog(PPOCatalog):
    """Builds the encoder and the head of a policy."""

    def build_encoder(self, framework: str = "torch") -> Network:
        """Return the encoder."""
        return self._encoder_config.build(framework=framework)


class DefaultBCTorchRLModule(TorchRLModule):
    """An encoder and a head, `encoder` and `pi`, from a `BCCatalog`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs["catalog_class"] = kwargs.get("catalog_class") or BCCatalog
        super().__init__(*args, **kwargs)

    def setup(self) -> None:
        """Build the parts from the catalog."""
        self.encoder = self.catalog.build_encoder(framework=self.framework)
        self.pi = self.catalog.build_pi_head(framework=self.framework)

    def get_initial_state(self) -> Tree:
        """Return the encoder's state; empty without memory."""
        if hasattr(self.encoder, "get_initial_state"):
            return self.encoder.get_initial_state()
        return {}

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        encoded = self.encoder(batch)
        output = {Columns.ACTION_DIST_INPUTS: self.pi(encoded[ENCODER_OUT])}
        if Columns.STATE_OUT in encoded:
            output[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return output
