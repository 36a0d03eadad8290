"""Command line of the process that has forked this one."""

import os
from pathlib import Path

command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().replace(b"\0", b" ").decode()
print(f"[{os.environ['RANK']}] {os.environ.get('JOB')} {' '.join(command.split())}")
