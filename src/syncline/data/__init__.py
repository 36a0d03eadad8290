"""Streaming datasets: reading, transforming, shuffling and feeding rows to training.

Files, in the order in which data flows through them: `tensors` (ndarrays and objects as Arrow columns), `columns` (one column: Python
values, ndarrays, Arrow), `schemas` (types that have to meet), `datatype` (types as programs write them), `frames` (pandas), `block` (a
piece of a dataset: rows and batches to tables and back), `expressions/` (what to compute from columns, as data).
"""

from syncline.data.block import Block
from syncline.data.datatype import DataType
from syncline.data.schemas import SchemaMismatchError, UnknownColumnError

__all__ = ["Block", "DataType", "SchemaMismatchError", "UnknownColumnError"]
