"""Runs a launcher on a host of an emulated network: `on_host.py NETWORK HOST SLOW ARGUMENTS...`.

The network of this host becomes slow once the file SLOW is there.
"""

import subprocess
import sys
import time
from pathlib import Path

from syncline.testing import emulated_network

DELAY_S = 0.01
"""Of each packet from and to this host."""

network, host, slow, *arguments = sys.argv[1:]
joined = emulated_network.join(network, int(host))
process = subprocess.Popen([sys.executable, "-m", "syncline", "run", *arguments])
is_slow = False
while process.poll() is None:
    time.sleep(0.1)
    if not is_slow and Path(slow).exists():
        is_slow = True
        joined.delay(DELAY_S)
sys.exit(process.returncode)
