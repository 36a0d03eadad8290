"""`TorchPredictor`: predictor for torch models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn

from syncline.data.iterate.torch_tensors import DTypes, to_tensor, to_tensors
from syncline.train.checkpoint import Checkpoint
from syncline.train.predictor import DataBatchType, Predictor
from syncline.train.torch.checkpoint import TorchCheckpoint

if TYPE_CHECKING:
    from syncline.data.preprocessor import Preprocessor

    Tensors: TypeAlias = torch.Tensor | dict[str, torch.Tensor]


class TorchPredictor(Predictor):
    """Predicts with a model in evaluation mode, without gradients.

    Args:
        model: Model.
        preprocessor: Applied to batches first.
        use_gpu: Move the model and its input to the GPU.
    """

    def __init__(
        self, model: nn.Module, preprocessor: Preprocessor | None = None, use_gpu: bool = False
    ) -> None:
        super().__init__(preprocessor)
        self.use_gpu = use_gpu
        self.device = torch.device("cuda" if use_gpu else "cpu")
        self.model = model.to(self.device).eval()
        # None until a batch with several columns has shown it.
        self._takes_columns: bool | None = None

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        model: nn.Module | None = None,
        use_gpu: bool = False,
        **kwargs: object,
    ) -> TorchPredictor:
        """Create a predictor from a checkpoint of `TorchCheckpoint`, with its preprocessor.

        Args:
            checkpoint: Checkpoint.
            model: Architecture, if the checkpoint holds a state dict only.
            use_gpu: Move the model and its input to the GPU.
            **kwargs: Arguments of the constructor of a subclass.
        """
        stored = TorchCheckpoint.of(checkpoint)
        return cls(
            model=stored.get_model(model),
            preprocessor=stored.get_preprocessor(),
            use_gpu=use_gpu,
            **kwargs,
        )

    def call_model(self, inputs: Tensors) -> Any:
        """Return the model's output, on its device. Override it if that is neither a tensor nor a
        dict of tensors.
        """
        with torch.no_grad():
            return self.model(inputs)

    def predict(self, data: DataBatchType, dtype: DTypes = None, **kwargs: Any) -> Any:
        """Return the predictions for a batch, named `predictions` or as the model names them.

        An ndarray or a single column is passed to the model as a tensor, several columns as a dict
        of tensors. If the model raises TypeError or AttributeError for the dict, the columns are
        stacked to one tensor `(rows, columns)`.

        Args:
            data: ndarray, dict of ndarrays, DataFrame or table.
            dtype: Data type of the tensors, or one by column. By default floats are converted to
                the model's data type, and others are kept.
            **kwargs: Arguments for a subclass.

        Raises:
            TypeError: A column holds no numbers, or the model did not return tensors.
        """
        return super().predict(data, dtype=dtype, **kwargs)

    def _predict_numpy(
        self, data: np.ndarray | dict[str, np.ndarray], dtype: DTypes = None, **kwargs: object
    ) -> dict[str, np.ndarray]:
        output = self._call_with(data, dtype)
        if isinstance(output, Mapping):
            return {name: _to_array(name, value) for name, value in output.items()}
        return {"predictions": _to_array("predictions", output)}

    def _call_with(self, data: np.ndarray | dict[str, np.ndarray], dtype: DTypes) -> Any:
        if isinstance(data, dict) and len(data) > 1:
            return self._call_with_columns(data, dtype)
        name, array = next(iter(data.items())) if isinstance(data, dict) else ("data", data)
        chosen = dtype.get(name) if isinstance(dtype, Mapping) else dtype
        return self.call_model(
            self._on_device(to_tensor(name, array, chosen), given=chosen is not None)
        )

    def _call_with_columns(self, data: dict[str, np.ndarray], dtype: DTypes) -> Any:
        given = dtype is not None
        tensors = to_tensors(data, dtype)
        if self._takes_columns is False:
            return self._call_with_rows(tensors, given)
        try:
            output = self.call_model(
                {name: self._on_device(tensor, given=given) for name, tensor in tensors.items()}
            )
            self._takes_columns = True
        except (TypeError, AttributeError):
            if self._takes_columns or any(tensor.ndim != 1 for tensor in tensors.values()):
                raise
            output = self._call_with_rows(tensors, given)
            self._takes_columns = False
        return output

    def _call_with_rows(self, tensors: dict[str, torch.Tensor], given: bool) -> Any:
        own = self._dtype or torch.get_default_dtype()
        rows = torch.stack(
            [tensor if given else tensor.to(own) for tensor in tensors.values()], dim=1
        )
        return self.call_model(rows.to(self.device))

    @property
    def _dtype(self) -> torch.dtype | None:
        return next(
            (
                parameter.dtype
                for parameter in self.model.parameters()
                if parameter.is_floating_point()
            ),
            None,
        )

    def _on_device(self, tensor: torch.Tensor, *, given: bool) -> torch.Tensor:
        """Move a tensor to the model's device; convert floats unless the program chose a dtype."""
        own = self._dtype if tensor.is_floating_point() and not given else None
        return tensor.to(self.device, own)


def _to_array(name: str, value: object) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"The model returned {type(value).__name__} for {name!r}, not a tensor: override "
            "`TorchPredictor.call_model` to return a tensor or a dict of tensors."
        )
    array: np.ndarray = value.detach().cpu().numpy()
    return array
