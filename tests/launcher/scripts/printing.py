"""Output of Python, of C and of child processes, on both streams."""

import os
import subprocess
import sys

rank = os.environ["RANK"]
print(f"[{rank}] python")
print(f"[{rank}] error", file=sys.stderr)
os.write(1, f"[{rank}] write\n".encode())
subprocess.run(["sh", "-c", f"echo '[{rank}] shell'; echo '[{rank}] shell error' >&2"], check=True)
sys.stdout.buffer.write(f"[{rank}] bytes \xe9\n".encode("latin-1"))
