"""Work of the agent's process; the launcher knows it without importing torch."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from typing import Any

from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class AgentProcess:
    """Work of the agent's process (see `core.embedded.program_server`)."""

    options: dict[str, Any]
    """Values of the command line by destination."""
    directory: str
    variables: dict[str, str]

    def __call__(self, fds: list[int]) -> None:
        """Run the job; end with torchrun's exit code."""
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.variables)
        code = 1
        try:
            from syncline.launcher.torch_agent import run_agent  # loads torch

            code = run_agent(socket.socket(fileno=fds[0]), self.options)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
