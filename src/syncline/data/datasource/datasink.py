"""The names of `ray.data.datasource.datasink`; they are defined in `io.sinks`."""

from syncline.data.io.sinks.datasink import (
    Datasink,
    SaveMode,
    TaskContext,
    WriteResult,
    WriteReturnType,
)

__all__ = ["Datasink", "SaveMode", "TaskContext", "WriteResult", "WriteReturnType"]
