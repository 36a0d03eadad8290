"""PyTorch's flight recorder: the last collective calls of this process.

torch keeps them in a ring buffer, whatever made the call: the program, `DistributedDataParallel`
(which calls from C++), FSDP2 or tensor parallelism. An entry costs about a microsecond. Not
covered: processes in which something used the recorder before the variable was set.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from torch._C import _distributed_c10d

from syncline import settings
from syncline.diagnosis.collective_calls import CollectiveCall

SIZE = "TORCH_FR_BUFFER_SIZE"
"""Variable with the number of entries."""
ENTRIES = 128
"""Number of entries where torch's default is 0. Reading them takes about a millisecond."""

_NVIDIA = "/dev/nvidiactl"


def environment(backend: str) -> dict[str, str]:
    """Return the variable that turns the recorder on; empty where torch does so itself."""
    return {} if "nccl" in backend else {SIZE: str(ENTRIES)}


def turn_on() -> None:
    """Turn the recorder of this process on, whose environment stays as it is.

    Call it before anything uses the recorder. It does nothing if the variable is set, which decides
    then, or on a machine with NVIDIA GPUs, where torch records the calls of NCCL.
    """
    dump = getattr(_distributed_c10d, "_dump_fr_trace_json", None)
    if dump is None or settings.environment(SIZE) is not None or os.path.exists(_NVIDIA):
        return
    os.environ[SIZE] = str(ENTRIES)
    dump(False, False)  # reads the variable the first time
    del os.environ[SIZE]


def recent_calls() -> list[CollectiveCall]:
    """Return the recorded calls of collective operations, oldest first; empty without a recorder.

    Calls between two ranks (`send`, `recv`) are left out.
    """
    dump = getattr(_distributed_c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return []
    content: Mapping[str, Any] = json.loads(dump(True, False))
    return [_call(each) for each in content.get("entries", ()) if not each.get("is_p2p")]


def _call(entry: Mapping[str, Any]) -> CollectiveCall:
    group = entry.get("process_group") or [str(entry.get("pg_id"))]
    if isinstance(group, str):
        group = ast.literal_eval(group)
    return CollectiveCall(
        group=str(group[0]),
        number=int(entry["collective_seq_id"]),
        operation=str(entry["profiling_name"]).rpartition(":")[2],
        sizes=_text(entry.get("input_sizes", ()), entry.get("input_dtypes", ())),
        arrived_s=int(entry["time_created_ns"]) * 1e-9,
        is_pending=not entry.get("retired", True),
    )


def _text(sizes: Sequence[object], types: Sequence[object]) -> str:
    """Return "[10] Float"; of many tensors, the first one and their number."""
    if not sizes:
        return ""
    kind = f" {types[0]}" if types else ""
    rest = f" and {len(sizes) - 1} more" if len(sizes) > 1 else ""
    return f"{sizes[0]}{kind}{rest}"
