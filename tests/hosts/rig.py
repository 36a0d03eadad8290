"""Simulated machines on this one, for tests of clusters.

Each host has its own address, host name and processes: namespaces, held by the host's first
process. A switch, which is also a host, connects them. The machine's own network is not affected,
so rigs do not interfere. A host ends, with all of its processes, when its first process ends, so a
killed rig leaves nothing behind. Hosts share files, shared memory and the clock. There is no name
resolution and no route to other networks. Packets can be lost; `syncline.testing.emulated_network`
delays them.

Requires root on Linux, and the commands `ip`, `nsenter`, `setpriv` and `unshare`. Without them, a
rig has the requested number of hosts, but all of them are this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from syncline.testing.clusters import THIS_HOST, Host
from syncline.testing.programs import Program, run_program
from syncline.testing.waiting import GENEROUS_S

NETWORK = "10.77.0"
"""First three numbers of every address; equal in all rigs, because each has its own network."""
MAX_HOSTS = 100
_INTERFACE = "eth0"
_NOBODY = "02:00:00:00:00:00"
"""Hardware address to which lost packets are sent."""
_FIRST_PROCESS = """
import signal, socket, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans become children of this process
socket.sethostname(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()  # ends with the rig, also if the rig is killed
"""
_NAMESPACES = ("--net", "--uts", "--pid", "--mount")
_ENTER = 'exec nsenter --target="$0" {} --wdns="$(pwd -P)" setpriv --pdeathsig=KILL "$@"'.format(
    " ".join(_NAMESPACES)
)
"""The command runs in a child of `nsenter` and dies with it."""
_PRIVATE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


class Rig:
    """Connected hosts, created by `hosts`. Not thread safe."""

    def __init__(self, members: Sequence[Host], why_not: str | None = None) -> None:
        """`why_not`: reason why all hosts are this machine; None if they are simulated."""
        self._members = tuple(members)
        self.why_not = why_not
        self._cut: set[tuple[Host, Host]] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, number: int) -> Host:
        return self._members[number]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._members)

    def run(
        self, host: Host, text: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Program]:
        """Run a program on a host, see `run_program`."""
        return run_program(text, *arguments, environment=environment, enter=host.enter)

    def cut(self, host: Host, *others: Host) -> None:
        """Drop all packets between `host` and the others (default: all others), without notice.

        Raises RuntimeError if the hosts are this machine.
        """
        if self.why_not is not None:
            raise RuntimeError(
                f"links between the hosts of this rig cannot be cut, because all of them are "
                f"this machine: {self.why_not}"
            )
        for other in others or self._others(host):
            for here, there in ((host, other), (other, host)):
                _ip(
                    here,
                    f"neigh replace {there.address} lladdr {_NOBODY} "
                    f"dev {_INTERFACE} nud permanent",
                )
                self._cut.add((here, there))

    def heal(self, host: Host, *others: Host) -> None:
        """Undo `cut`."""
        for other in others or self._others(host):
            for here, there in {(host, other), (other, host)} & self._cut:
                _ip(here, f"neigh del {there.address} dev {_INTERFACE}")
                self._cut.remove((here, there))

    def with_own(self, host: Host, directory: Path) -> Host:
        """Return the host with an empty private `directory` for each command."""
        if self.why_not is not None:
            raise RuntimeError(
                f"the hosts of this rig have no private directories, because all of them are this "
                f"machine: {self.why_not}"
            )
        return replace(
            host, enter=(*host.enter, "unshare", "--mount", "sh", "-c", _PRIVATE, str(directory))
        )

    def _others(self, host: Host) -> list[Host]:
        return [other for other in self._members if other.address != host.address]


@contextmanager
def hosts(count: int) -> Iterator[Rig]:
    """Create hosts until the end of the block; their processes are killed then.

    Raises ValueError for fewer than one host, or more than `MAX_HOSTS`.
    """
    if not 1 <= count <= MAX_HOSTS:
        raise ValueError(f"hosts({count}): a rig has between 1 and {MAX_HOSTS} hosts")
    with ExitStack() as stack:
        try:
            rig = Rig(
                _connected(
                    [
                        stack.enter_context(_first_process(f"host-{number}"))
                        for number in range(count + 1)
                    ]
                )
            )
        except (OSError, _Refused) as error:
            rig = Rig(
                [THIS_HOST] * count, why_not=f"network namespaces are not permitted here ({error})"
            )
        yield rig


class _Refused(Exception):
    """The machine refuses to create hosts; the message has the reason."""


@contextmanager
def _first_process(name: str) -> Iterator[int]:
    """Start a host without a network and yield the id of its first process."""
    command = [
        "unshare",
        *_NAMESPACES,
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        "-I",
        "-S",
        "-c",
        _FIRST_PROCESS,
        name,
    ]
    unshare = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert unshare.stdout is not None
    try:
        if not unshare.stdout.readline():
            raise _Refused(_joined(unshare.communicate()[1]))
        yield psutil.Process(unshare.pid).children()[0].pid
    finally:
        unshare.kill()
        unshare.communicate()


def _connected(first_processes: Sequence[int]) -> list[Host]:
    """Make the first host the switch, connect the others to it, and assign addresses."""
    switch, *made = [
        Host(address=f"{NETWORK}.{number}", enter=("sh", "-c", _ENTER, str(process)))
        for number, process in enumerate(first_processes)
    ]
    _ip(switch, "link add switch type bridge", "link set switch up")
    for number, host in enumerate(made, start=1):
        port = f"port{number}"
        _ip(
            THIS_HOST,
            f"link add {port} netns {first_processes[0]} type veth "
            f"peer name {_INTERFACE} netns {first_processes[number]}",
        )
        _ip(switch, f"link set {port} master switch up")
        _ip(
            host,
            "link set lo up",
            f"addr add {host.address}/24 dev {_INTERFACE}",
            f"link set {_INTERFACE} up",
        )
    return made


def _ip(host: Host, *commands: str) -> None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    program = shutil.which("ip", path=path)
    if program is None:
        raise _Refused("the command `ip` is missing")
    done = subprocess.run(
        host.command(program, "-batch", "-"),
        input="\n".join(commands),
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
    )
    if done.returncode != 0:
        raise _Refused(_joined(done.stderr))


def _joined(text: str) -> str:
    return "; ".join(text.split("\n")).strip("; ") or "no reason was given"
