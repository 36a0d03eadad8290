"""State of the interpreter, as far as a launcher could change it."""

import multiprocessing
import os
import signal
import sys

rank = os.environ["RANK"]
STABLE = {"MASTER_ADDR", "OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}


def show(*values: object) -> None:
    print(f"[{rank}] {' '.join(map(str, values))}")


for name, value in sorted(os.environ.items()):
    if name.startswith(("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT")):
        show(name, bool(value))
    elif name.startswith(("TORCH", "RANK", "LOCAL", "GROUP", "ROLE", "WORLD")) or name in STABLE:
        show(name, value)
show("argv", sys.argv)
show("orig_argv", sys.orig_argv[1:])
show("path", os.path.basename(sys.path[0]), "" in sys.path, sys.path[1:])
show("main", __name__, os.path.basename(__file__), __spec__, type(__loader__).__name__, __package__)
show("names", sorted(name for name in globals() if name.startswith("__")))
show("module", sys.modules["__main__"].__dict__ is globals())
show("flags", sys.flags)
for stream in (sys.stdin, sys.stdout, sys.stderr):
    show(stream.name, stream.mode, stream.encoding, stream.errors, stream.newlines)
    show(stream.line_buffering, stream.write_through, stream.isatty(), stream.fileno())
show("buffer", type(sys.stdout.buffer).__name__, type(sys.stdin.buffer).__name__)
for number in ("SIGINT", "SIGTERM", "SIGCHLD", "SIGPIPE", "SIGHUP", "SIGUSR1"):
    show(number, signal.getsignal(getattr(signal, number)))
show("session", os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())
show("process", multiprocessing.current_process().name, multiprocessing.parent_process())
show("cwd", os.getcwd() == multiprocessing.process.ORIGINAL_DIR, os.path.basename(os.getcwd()))
import torch  # noqa: E402

show("threads", torch.get_num_threads(), torch.cuda.is_initialized())
show("group", torch.distributed.is_torchelastic_launched(), torch.distributed.is_initialized())
