"""`DAGContext`: settings of compiled graphs that programs read and set.

Ray's limits on channels have no counterpart, because values pass through the object store (see
`compiled`), so the settings have no effect.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class DAGContext:
    """Settings of compiled graphs; `get_current()` returns those of this process.

    Raises:
        ValueError: `read_iteration_timeout` is longer than `get_timeout`.
    """

    submit_timeout: int = 10
    """Seconds that an execution may wait to be submitted."""
    get_timeout: int = 10
    """Seconds to wait for a result."""
    teardown_timeout: int = 30
    """Seconds that the end of a graph may take."""
    read_iteration_timeout: float = 0.1
    """Seconds to read one channel."""
    buffer_size_bytes: int = 1_000_000
    """Size of a channel's buffer."""
    max_inflight_executions: int = 10
    """Executions whose results were not read yet."""
    max_buffered_results: int = 1000
    """Results that the program holds for later."""
    overlap_gpu_communication: bool = False
    """True to communicate between GPUs during computation."""

    def __post_init__(self) -> None:
        if self.read_iteration_timeout > self.get_timeout:
            raise ValueError(
                f"`read_iteration_timeout={self.read_iteration_timeout}` is longer than "
                f"`get_timeout={self.get_timeout}`: lower it"
            )

    @staticmethod
    def get_current() -> DAGContext:
        """Return the settings of this process."""
        return _current


_current = DAGContext()
