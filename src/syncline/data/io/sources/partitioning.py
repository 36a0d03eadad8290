"""Columns that stand in the paths of files: `year=2024/month=5/part.parquet` (hive) or `cat/0.png`
(directories).

Covered: parsing one path (`PathPartitionParser`), keeping files by their values
(`PathPartitionFilter`), adding the columns to a table. Values are strings unless `field_types` says
otherwise. Not covered: writing partitions (`sinks/parquet.py`).
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
"""How hive writes a null into a path."""

_ARROW_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


class PartitionStyle(str, Enum):
    """How values stand in paths."""

    HIVE = "hive"
    """`name=value` directories."""
    DIRECTORY = "dir"
    """Directories that are the values; `field_names` names them."""


@dataclass
class Partitioning:
    """How to find columns in paths."""

    style: PartitionStyle
    """`PartitionStyle`, or its value "hive" or "dir"."""
    base_dir: str | None = None
    """Only directories below this one count; None looks at the whole path."""
    field_names: list[str] | None = None
    """Names of the columns in the order of the directories: needed for "dir", a check for
    "hive".
    """
    field_types: dict[str, type] | None = field(default_factory=dict)
    """int, float, bool or str for a column; str for those that are not named."""
    filesystem: Any = None
    """Filesystem of `base_dir`; found from it if None."""

    def __post_init__(self) -> None:
        self.style = PartitionStyle(self.style)
        self.base_dir = self.base_dir or ""
        self.field_types = self.field_types or {}
        if self.style is PartitionStyle.DIRECTORY and not self.field_names:
            raise ValueError(
                "Partitioning('dir') has no names for its columns: pass field_names=[…], one for each level of directories"
            )
        for name, type_ in self.field_types.items():
            if type_ not in _ARROW_TYPES:
                raise ValueError(
                    f"field_types[{name!r}] is {type_!r}: choose str, int, float or bool"
                )

    @cached_property
    def normalized_base_dir(self) -> str:
        """`base_dir` as paths on its filesystem begin, with a slash at its end; empty for any."""
        if not self.base_dir:
            return ""
        return f"{filesystems.resolve(self.base_dir, self.filesystem)[1][0].rstrip('/')}/"


HIVE = Partitioning(PartitionStyle.HIVE)
"""`name=value` directories anywhere in a path: what the readers of tables look for unless they are
told otherwise.
"""


class PathPartitionParser:
    """Reads the columns in paths.

    Args:
        partitioning: Where and how they stand there.
    """

    def __init__(self, partitioning: Partitioning) -> None:
        self._scheme = partitioning

    @staticmethod
    def of(
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: Any = None,
    ) -> PathPartitionParser:
        """A parser from the fields of `Partitioning`."""
        return PathPartitionParser(
            Partitioning(style, base_dir, field_names, field_types, filesystem)
        )

    @property
    def scheme(self) -> Partitioning:
        """What was given to the constructor."""
        return self._scheme

    def __call__(self, path: str) -> dict[str, Any]:
        """Columns and values of one path; empty where it has none or lies outside of `base_dir`.
        ValueError if the names do not fit.
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
        """Arrow's types of columns."""
        types = self._scheme.field_types or {}
        return {name: _ARROW_TYPES[types.get(name, str)] for name in names}

    def _hive(self, directories: list[str]) -> dict[str, str]:
        pairs = [part.split("=") for part in directories if part.count("=") == 1]
        names = self._scheme.field_names
        if names and pairs and [name for name, _ in pairs] != list(names):
            raise ValueError(
                f"the path has the partitions {[name for name, _ in pairs]}, but field_names={names}"
            )
        # Object stores and file systems get values percent-encoded.
        return {name: urllib.parse.unquote(value) for name, value in pairs}

    def _directories(self, directories: list[str]) -> dict[str, str]:
        names = self._scheme.field_names or []
        if directories and len(directories) != len(names):
            raise ValueError(
                f"the path has {len(directories)} levels of directories, {directories}, but field_names={names}: "
                "name every level, or set base_dir to the directory below which they begin"
            )
        return (
            {
                name: value
                for name, value in zip(names, directories, strict=bool(directories))
                if name is not None
            }
            if directories
            else {}
        )


class PathPartitionFilter:
    """Keeps the files whose partition values a function accepts.

    Args:
        path_partition_parser: Reads the values. filter_fn: Gets the values (empty for a file that
        has none) and says whether to read the file.
    """

    def __init__(
        self,
        path_partition_parser: PathPartitionParser,
        filter_fn: Callable[[dict[str, Any]], bool],
    ) -> None:
        self._parser = path_partition_parser
        self._filter_fn = filter_fn

    @staticmethod
    def of(
        filter_fn: Callable[[dict[str, Any]], bool],
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: Any = None,
    ) -> PathPartitionFilter:
        """A filter from a function and the fields of `Partitioning`."""
        return PathPartitionFilter(
            PathPartitionParser.of(style, base_dir, field_names, field_types, filesystem), filter_fn
        )

    def __call__(self, paths: list[str]) -> list[str]:
        """The paths that are kept, in their order."""
        return [path for path in paths if self.apply(path)]

    def apply(self, path: str) -> bool:
        """Whether to read one file."""
        return self._filter_fn(self._parser(path))

    @property
    def parser(self) -> PathPartitionParser:
        """What reads the values."""
        return self._parser


def append_columns(
    table: pa.Table, values: Mapping[str, Any], types: Mapping[str, pa.DataType], path: str
) -> pa.Table:
    """The table with one constant column for each value, last.

    ValueError where the table has the column already, with other values in it.
    """
    for name, value in values.items():
        column = pa.repeat(pa.scalar(value, types[name]), table.num_rows)
        if name not in table.column_names:
            table = table.append_column(name, column)
            continue
        present = table[name]
        try:
            same = (
                present.equals(pa.chunked_array([column.cast(present.type)]))
                if table.num_rows
                else True
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            same = False
        if not same:
            raise ValueError(
                f"{path}: column {name!r} in the file differs from the value {value!r} in its path: "
                "pass partitioning=None to read what is in the file"
            )
    return table


def _typed(name: str, value: str, type_: type, path: str) -> Any:
    if value == HIVE_NULL:
        return None
    if type_ is bool:
        return value.lower() == "true"
    try:
        return type_(value)
    except ValueError as error:
        message = f"{path}: the partition value {value!r} of {name!r} is no {type_.__name__}: correct field_types"
        raise ValueError(message) from error
