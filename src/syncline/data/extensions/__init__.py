"""Extension types of Arrow and pandas, with the names of `ray.data.extensions`.

`tensor_extension` has the tensors and `object_extension` the Python objects. Datasets convert
ndarrays and objects by themselves; these names are for programs that build Arrow tables or
DataFrames with such columns, or look at the types of a schema.
"""

from syncline.data.extensions.object_extension import (
    ArrowPythonObjectArray,
    ArrowPythonObjectScalar,
    ArrowPythonObjectType,
)
from syncline.data.extensions.tensor_extension import (
    ArrowConversionError,
    ArrowTensorArray,
    ArrowTensorType,
    ArrowTensorTypeV2,
    ArrowVariableShapedTensorArray,
    ArrowVariableShapedTensorType,
    FixedShapeTensorType,
    TensorArray,
    TensorArrayElement,
    TensorDtype,
    column_needs_tensor_extension,
    create_arrow_fixed_shape_tensor_type,
    get_arrow_extension_tensor_types,
)

__all__ = [
    "ArrowConversionError",
    "ArrowPythonObjectArray",
    "ArrowPythonObjectScalar",
    "ArrowPythonObjectType",
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
    "FixedShapeTensorType",
    "TensorArray",
    "TensorArrayElement",
    "TensorDtype",
    "column_needs_tensor_extension",
    "create_arrow_fixed_shape_tensor_type",
    "get_arrow_extension_tensor_types",
]
