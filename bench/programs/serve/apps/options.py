"""Settings that the applications of all libraries share. Imports nothing, so that servers start as
fast as their libraries do.
"""

HOST = "127.0.0.1"
ONGOING = 128
"""Requests that a replica may handle at once: more than there are connections."""
BATCH = 16
WAIT_S = 0.005
"""Time that a batch waits for further requests, where it is fixed."""
WAITS_S = {"0ms": 0.0, "1ms": 0.001, "2ms": 0.002, "5ms": WAIT_S, "10ms": 0.01}
"""Paths of the batched application of syncline, and their fixed waits."""
AUTO = "auto"
"""Path of the batched application of syncline that adapts its wait."""
CHUNKS = 100
TOKEN_S = 0.005
"""Pause after each chunk of a paced stream."""
TOKEN = "token |"
"""One chunk; clients count its last character."""
STREAM_PATH = "/stream"
"""Path of a stream without end."""
UPDATE_S = 0.5
"""Pause between two updates of the application in a soak."""
