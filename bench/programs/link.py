"""`Link`: the limited throughput of simulated remote storage."""

import threading
import time


class Link:
    """A link with limited throughput; concurrent senders wait."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_at = 0.0

    def send(self, size_bytes: int) -> None:
        """Block until the bytes are transferred."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size_bytes / self._bytes_per_s
            pause_s = self._free_at - time.monotonic()
        time.sleep(max(0.0, pause_s))
