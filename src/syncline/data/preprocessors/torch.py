"""`TorchVisionPreprocessor`: apply a torchvision transform, or any function of tensors, to image
columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline import optional
from syncline.data.columnar import tensors
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.preprocessor import BatchFormat, SerializablePreprocessorBase
from syncline.data.preprocessors.base import parameter

if TYPE_CHECKING:
    import torch


class TorchVisionPreprocessor(SerializablePreprocessorBase):
    """Applies a transform to each image, or to whole batches.

    The transform gets a tensor; if it raises TypeError for a tensor (as `ToTensor` does), it gets
    an ndarray. Results of different shapes become ragged tensors.

    Args:
        columns: Names of columns of images `(height, width, channels)`.
        transform: Function from an image, or with `batched` from `(batch, height, width,
            channels)`, to a tensor or ndarray.
        output_columns: Names of the output columns; the input columns by default.
        batched: True if the transform takes batches.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        transform: Callable[[np.ndarray | torch.Tensor], torch.Tensor],
        output_columns: list[str] | None = None,
        batched: bool = False,
    ) -> None:
        super().__init__()
        self._columns = columns
        self._output_columns = self._derive_and_validate_output_columns(columns, output_columns)
        self._torchvision_transform = transform
        self._batched = batched

    columns: list[str] = parameter("_columns")
    output_columns: list[str] = parameter("_output_columns")
    torchvision_transform: Callable[[np.ndarray | torch.Tensor], torch.Tensor] = parameter(
        "_torchvision_transform"
    )
    batched: bool = parameter("_batched")

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """Return NUMPY: transforms get arrays."""
        return BatchFormat.NUMPY

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(columns={self._columns}, "
            f"output_columns={self._output_columns}, transform={self._torchvision_transform!r})"
        )

    def _transform_numpy(self, np_data: Any) -> Any:
        if isinstance(np_data, np.ndarray):
            return self._transform_images(np_data)
        for name in self._columns:
            if name not in np_data:
                raise UnknownColumnError(name, list(np_data))
        written = {
            output: self._transform_images(np_data[name])
            for name, output in zip(self._columns, self._output_columns, strict=True)
        }
        return {**np_data, **written}

    def _transform_images(self, images: np.ndarray) -> np.ndarray:
        """Transform `(batch, ...)` to `(batch, ...)`, or to objects `(batch,)` if shapes differ."""
        if self._batched:
            return self._apply(images)
        results = [self._apply(image) for image in images]
        if results and all(result.shape == results[0].shape for result in results):
            return np.stack(results)
        return tensors.objects_to_ndarray(results)

    def _apply(self, array: np.ndarray) -> np.ndarray:
        torch = optional.load("torch", purpose="TorchVisionPreprocessor", install="torch")
        try:
            # torch warns about read-only arrays, such as arrays that share memory with a block.
            result: object = self._torchvision_transform(
                torch.as_tensor(array if array.flags.writeable else array.copy())
            )
        except TypeError:
            result = self._torchvision_transform(array)
        if isinstance(result, torch.Tensor):
            result = result.numpy()
        if not isinstance(result, np.ndarray):
            raise ValueError(
                f"the transform returned {type(result).__name__}, but must return a torch.Tensor "
                "or an ndarray"
            )
        return result
