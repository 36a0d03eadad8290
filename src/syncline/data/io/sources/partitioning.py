"""Partition columns: values in file paths, such as `year=2024/month=5/part.parquet` (hive) or
`cat/0.png` (directories).

Covered: parsing a path (`PathPartitionParser`), selecting files by partition values
(`PathPartitionFilter`), adding the columns to a table. Values are strings unless `field_types` has
another type. Not covered: writing partitions (`sinks/parquet.py`).
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from syncline.data.io import filesystem as filesystems

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""Encoding of null in a hive path."""

PartitionValues = dict[str, Any]
"""Values by column: str, int, float, bool or None."""

_ARROW_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


class PartitionStyle(str, Enum):
    """Encoding of values in paths."""

    HIVE = "hive"
    """`name=value` directories."""
    DIRECTORY = "dir"
    """Directories named by the value; `field_names` gives the column names."""


@dataclass
class Partitioning:
    """Description of the columns in file paths."""

    style: PartitionStyle
    """`PartitionStyle`, or its value "hive" or "dir"."""
    base_dir: str | None = None
    """Directory below which partitions begin; None considers the whole path."""
    field_names: list[str] | None = None
    """Column names in the order of the directories: required for "dir", checked for "hive"."""
    field_types: dict[str, type] | None = field(default_factory=dict)
    """Types of the columns: int, float, bool or str; str by default."""
    filesystem: object = None
    """Filesystem of `base_dir`; found from it if None."""

    def __post_init__(self) -> None:
        self.style = PartitionStyle(self.style)
        self.base_dir = self.base_dir or ""
        self.field_types = self.field_types or {}
        if self.style is PartitionStyle.DIRECTORY and not self.field_names:
            raise ValueError(
                "Partitioning('dir') has no column names: pass field_names=[…], one for each level "
                "of directories"
            )
        for name, type_ in self.field_types.items():
            if type_ not in _ARROW_TYPES:
                raise ValueError(
                    f"field_types[{name!r}] is {type_!r}: choose str, int, float or bool"
                )

    @cached_property
    def normalized_base_dir(self) -> str:
        """`base_dir` as a path prefix on its filesystem, with a trailing slash; empty for any."""
        if not self.base_dir:
            return ""
        return f"{filesystems.resolve(self.base_dir, self.filesystem)[1][0].rstrip('/')}/"


HIVE = Partitioning(PartitionStyle.HIVE)
"""`name=value` directories anywhere in a path: the default of the tabular readers."""


class PathPartitionParser:
    """Parses partition columns from paths.

    Args:
        partitioning: Description of the columns.
    """

    def __init__(self, partitioning: Partitioning) -> None:
        self._scheme = partitioning

    @staticmethod
    def of(
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: object = None,
    ) -> PathPartitionParser:
        """Create a parser from the fields of `Partitioning`."""
        return PathPartitionParser(
            Partitioning(style, base_dir, field_names, field_types, filesystem)
        )

    @property
    def scheme(self) -> Partitioning:
        """The partitioning given to the constructor."""
        return self._scheme

    def __call__(self, path: str) -> PartitionValues:
        """Return the columns of one path; empty if it has none or is outside of `base_dir`.

        Raises ValueError if the names do not match `field_names`.
        """
        base = self._scheme.normalized_base_dir
        if not path.startswith(base):
            return {}
        directories = [part for part in path[len(base) :].split("/")[:-1] if part]
        found = (
            self._hive(directories)
            if self._scheme.style is PartitionStyle.HIVE
            else self._directories(directories)
        )
        types = self._scheme.field_types or {}
        return {
            name: _typed(name, value, types.get(name, str), path) for name, value in found.items()
        }

    def types(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the Arrow types of some columns."""
        types = self._scheme.field_types or {}
        return {name: _ARROW_TYPES[types.get(name, str)] for name in names}

    def _hive(self, directories: list[str]) -> dict[str, str]:
        pairs = [part.split("=") for part in directories if part.count("=") == 1]
        names = self._scheme.field_names
        if names and pairs and [name for name, _ in pairs] != list(names):
            raise ValueError(
                f"the path has the partitions {[name for name, _ in pairs]}, but "
                f"field_names={names}"
            )
        # Values are percent-encoded in paths.
        return {name: urllib.parse.unquote(value) for name, value in pairs}

    def _directories(self, directories: list[str]) -> dict[str, str]:
        names = self._scheme.field_names or []
        if not directories:
            return {}
        if len(directories) != len(names):
            raise ValueError(
                f"the path has {len(directories)} levels of directories, {directories}, but "
                f"field_names={names}: name every level, or set base_dir to the directory below "
                "which the partitions begin"
            )
        named = zip(names, directories, strict=True)
        return {name: value for name, value in named if name is not None}


class PathPartitionFilter:
    """Selects files by their partition values.

    Args:
        path_partition_parser: Parses the values.
        filter_fn: Returns True to read a file, given its values (empty if it has none).
    """

    def __init__(
        self,
        path_partition_parser: PathPartitionParser,
        filter_fn: Callable[[PartitionValues], bool],
    ) -> None:
        self._parser = path_partition_parser
        self._filter_fn = filter_fn

    @staticmethod
    def of(
        filter_fn: Callable[[PartitionValues], bool],
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: object = None,
    ) -> PathPartitionFilter:
        """Create a filter from a function and the fields of `Partitioning`."""
        return PathPartitionFilter(
            PathPartitionParser.of(style, base_dir, field_names, field_types, filesystem), filter_fn
        )

    def __call__(self, paths: list[str]) -> list[str]:
        """Return the selected paths, in order."""
        return [path for path in paths if self.apply(path)]

    def apply(self, path: str) -> bool:
        """Return True if the file is selected."""
        return self._filter_fn(self._parser(path))

    @property
    def parser(self) -> PathPartitionParser:
        """The parser given to the constructor."""
        return self._parser


def append_columns(
    table: pa.Table, values: PartitionValues, types: Mapping[str, pa.DataType], path: str
) -> pa.Table:
    """Append a constant column for each value.

    Raises ValueError if the table already has the column with other values.
    """
    for name, value in values.items():
        column = pa.repeat(pa.scalar(value, types[name]), table.num_rows)
        if name not in table.column_names:
            table = table.append_column(name, column)
            continue
        present = table[name]
        try:
            same = not table.num_rows or present.equals(
                pa.chunked_array([column.cast(present.type)])
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            same = False
        if not same:
            raise ValueError(
                f"{path}: column {name!r} in the file differs from the value {value!r} in its "
                "path: pass partitioning=None to read the column of the file"
            )
    return table


def _typed(name: str, value: str, type_: type, path: str) -> object:
    if value == HIVE_NULL:
        return None
    if type_ is bool:
        return value.lower() == "true"
    try:
        return type_(value)
    except ValueError as error:
        raise ValueError(
            f"{path}: the partition value {value!r} of {name!r} is no {type_.__name__}: correct "
            "field_types"
        ) from error
