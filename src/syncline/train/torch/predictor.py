"""`TorchPredictor`: a torch model applied to batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn

from syncline.data.iterate.torch import DTypes, to_tensor, to_tensors
from syncline.train.checkpoint import Checkpoint
from syncline.train.predictor import DataBatchType, Predictor
from syncline.train.torch.checkpoint import TorchCheckpoint

if TYPE_CHECKING:
    from syncline.data.preprocessor import Preprocessor

    Tensors: TypeAlias = torch.Tensor | dict[str, torch.Tensor]


class TorchPredictor(Predictor):
    """Predicts with a model in evaluation mode, without gradients.

    Args:
        model: The model.
        preprocessor: What batches go through first.
        use_gpu: Whether the model and its input go to the GPU.
    """

    def __init__(
        self, model: nn.Module, preprocessor: Preprocessor | None = None, use_gpu: bool = False
    ) -> None:
        super().__init__(preprocessor)
        self.use_gpu = use_gpu
        self.device = torch.device("cuda" if use_gpu else "cpu")
        self.model = model.to(self.device).eval()
        self._takes_columns: bool | None = (
            None  # None until a batch of several columns has shown it
        )

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        model: nn.Module | None = None,
        use_gpu: bool = False,
        **kwargs: Any,
    ) -> TorchPredictor:
        """The predictor of the model in a checkpoint that `TorchCheckpoint` made, with the
        preprocessor that it carries.

        Args:
            checkpoint: The checkpoint.
            model: The architecture, if the checkpoint has a state dict only.
            use_gpu: Whether the model and its input go to the GPU.
            **kwargs: For the constructor of a subclass.
        """
        stored = TorchCheckpoint.of(checkpoint)
        return cls(
            model=stored.get_model(model),
            preprocessor=stored.get_preprocessor(),
            use_gpu=use_gpu,
            **kwargs,
        )

    def call_model(self, inputs: Tensors) -> Any:
        """What the model makes of its input, on its device. To be overridden where that is no
        tensor and no dict of tensors.
        """
        with torch.no_grad():
            return self.model(inputs)

    def predict(self, data: DataBatchType, dtype: DTypes = None, **kwargs: Any) -> Any:
        """The predictions for a batch, as `predictions`, or under the names that the model gives
        them.

        A bare ndarray or a single column is given to the model as a tensor. Several columns are a
        dict of tensors; for a model that takes none (it raises TypeError or AttributeError) they
        are put together as one tensor `(rows, columns)`.

        Args:
            data: An ndarray, a dict of them, a DataFrame or a table.
            dtype: Of the tensors, or by column; by default floats are given in the model's own
                dtype, and others as they are.
            **kwargs: For a subclass.

        Raises:
            TypeError: A column holds no numbers, or the model returned something else than tensors.
        """
        return super().predict(data, dtype=dtype, **kwargs)

    def _predict_numpy(
        self, data: np.ndarray | dict[str, np.ndarray], dtype: DTypes = None, **kwargs: Any
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
        """The dtype of the model's parameters."""
        return next(
            (
                parameter.dtype
                for parameter in self.model.parameters()
                if parameter.is_floating_point()
            ),
            None,
        )

    def _on_device(self, tensor: torch.Tensor, *, given: bool) -> torch.Tensor:
        """The tensor where the model is; floats in the model's own dtype, unless the program gave
        one.
        """
        own = self._dtype if tensor.is_floating_point() and not given else None
        return tensor.to(self.device, own)


def _to_array(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"the model returned {type(value).__name__} for {name!r}, not a tensor: override TorchPredictor.call_model so that it returns "
            "a tensor or a dict of tensors"
        )
    array: np.ndarray = value.detach().cpu().numpy()
    return array
