"""Checks: one line for each subject, ok or with a remedy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from syncline.cli.doctor.findings import Examination, NodeFacts, Space
from syncline.dashboard.formatting import size

Status = Literal["ok", "warning", "wrong", "skipped"]

SKEW_S = 1.0
LEAST_SHARED_BYTES = 1024**3
LEAST_FREE_SHARED_BYTES = 64 * 1024**2
LEAST_DISK_BYTES = 1024**3
FULLEST_DISK = 0.95
"""Share of used disk space above which a node stores no more objects."""
LEAST_OPEN_FILES, ENOUGH_OPEN_FILES = 1024, 4096
NAMED = 5
"""Number of broken links or nodes in one line."""


@dataclass(frozen=True)
class Check:
    """One line; the field names are the keys of `--json`."""

    check: str
    """Subject."""
    status: Status
    """`warning` is not a failure; `skipped` means that the check was impossible or unnecessary."""
    message: str
    """Finding."""
    remedy: str | None = None
    """Remedy, unless the check passed."""


class Result(NamedTuple):
    """Fields of a `Check` besides its subject."""

    status: Status
    message: str
    remedy: str | None = None


def run_checks(facts: Examination) -> list[Check]:
    """Return all lines, in the order in which to look into them."""
    return [Check(subject, *check(facts)) for subject, check in CHECKS.items()]


def nodes(facts: Examination) -> Result:
    """Check which nodes answer."""
    if facts.cluster is None:
        return Result("ok", "this machine; no cluster")
    total = len(facts.nodes) + len(facts.silent) + len(facts.dead)
    if facts.silent:
        return Result(
            "wrong",
            "cannot be examined: " + _each(facts.silent),
            "install the same syncline and its dependencies in the Python that runs Ray "
            "there; see the node's logs",
        )
    if facts.dead:
        return Result(
            "warning",
            f"{len(facts.nodes)} of {total} answer; the cluster has lost " + _names(facts.dead),
            f"restart them with `syncline start --address={facts.cluster}`, unless they "
            "were stopped on purpose",
        )
    return Result(
        "ok",
        f"{_count(total, 'node')} of the cluster at {facts.cluster} answer{'s' * (total == 1)}",
    )


def python(facts: Examination) -> Result:
    """Check that the minor version of Python is the same everywhere, because values are pickled."""
    found = _everyone(facts, lambda node: node.python)
    minor = {version.rpartition(".")[0] for version in found.values()}
    if len(set(found.values())) <= 1:
        return Result("ok", _same(facts, found))
    status: Status = "wrong" if len(minor) > 1 else "warning"
    return Result(
        status, _groups(found), "install the same version of Python on every node and here"
    )


def torch_version(facts: Examination) -> Result:
    """Check that torch can be imported, and its version."""
    broken = {name: node.torch_error for name, node in facts.nodes.items() if node.torch_error}
    if broken:
        return Result("wrong", "cannot be imported: " + _each(broken), "reinstall torch there")
    absent = "not installed; needed to train PyTorch models: pip install torch"
    return library_version("torch", absent, facts)


def library_version(library: str, absent: str, facts: Examination) -> Result:
    """Check that the version of a library is the same everywhere; `absent` is said without it."""
    found = _everyone(facts, lambda node: node.versions.get(library) or "not installed")
    different = set(found.values())
    if different == {"not installed"}:
        return Result("skipped", absent)
    if len(different) <= 1:
        return Result("ok", _same(facts, found))
    return Result(
        "wrong", _groups(found), f"install the same version of {library} on every node and here"
    )


def gpus(facts: Examination) -> Result:
    """Check the GPUs, their driver, and whether torch can use them."""
    owners = {name: node for name, node in facts.nodes.items() if node.gpus}
    if not owners:
        return Result("ok", "none")
    found = _groups(
        {
            name: _models(node.gpus) + f", driver {node.driver or 'unknown'}"
            for name, node in owners.items()
        }
    )
    builds = [
        name for name, node in owners.items() if node.torch is not None and node.torch.cuda is None
    ]
    if builds:
        return Result(
            "wrong",
            f"torch is a CPU build on {_names(builds)} and cannot use the GPUs ({found})",
            "install a CUDA build of torch (see pytorch.org), or train with use_gpu=False",
        )
    unusable = [
        name
        for name, node in owners.items()
        if node.torch is not None and not node.torch.cuda_available
    ]
    if unusable:
        return Result(
            "wrong",
            f"torch finds no usable GPU on {_names(unusable)} ({found})",
            "check `nvidia-smi` and CUDA_VISIBLE_DEVICES there, and that the driver "
            "supports torch's CUDA version",
        )
    if len({node.driver for node in owners.values()}) > 1:
        return Result("warning", found, "install the same driver on every node with GPUs")
    return Result("ok", found)


def nccl(facts: Examination) -> Result:
    """Check NCCL, through which GPUs communicate."""
    owners = {
        name: node.torch
        for name, node in facts.nodes.items()
        if node.gpus and node.torch is not None
    }
    if not owners:
        return Result(
            "skipped", "no GPUs" if not any(n.gpus for n in facts.nodes.values()) else "no torch"
        )
    found = {name: torch.nccl or "not built in" for name, torch in owners.items()}
    missing = [name for name, torch in owners.items() if torch.nccl is None]
    if missing:
        return Result(
            "wrong",
            f"torch has no NCCL on {_names(missing)}",
            "install a CUDA build of torch for Linux (see pytorch.org), or use "
            "TorchConfig(backend='gloo')",
        )
    if len(set(found.values())) > 1:
        return Result("wrong", _groups(found), "install the same build of torch on every node")
    return Result("ok", _same(facts, found))


def clocks(facts: Examination) -> Result:
    """Check the clocks, because times in logs and records are compared."""
    if not facts.skews:
        return Result("ok", "one machine")
    off = {
        name: f"{abs(skew.seconds):.1f} s {'ahead' if skew.seconds > 0 else 'behind'}"
        for name, skew in facts.skews.items()
        if abs(skew.seconds) - skew.uncertain_s > SKEW_S
    }
    if off:
        return Result(
            "warning",
            "differ from this machine's: " + _each(off),
            "run a time service there (chrony, systemd-timesyncd)",
        )
    worst = max(abs(skew.seconds) + skew.uncertain_s for skew in facts.skews.values())
    return Result(
        "ok",
        f"within {max(worst, 0.001):.3f} s" if worst < SKEW_S else "within the round-trip time",
    )


def network(facts: Examination) -> Result:
    """Check that every node reaches every other one on any port."""
    broken = [link for link in facts.links if link.error is not None]
    if not facts.links:
        return Result("ok", "one node")
    if not broken:
        return Result("ok", f"all {len(facts.links)} links between {len(facts.nodes)} nodes")
    named = "; ".join(
        f"{link.source} does not reach {link.target}: {link.error}" for link in broken[:NAMED]
    )
    more = f"; and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    return Result(
        "wrong",
        f"{len(broken)} of {len(facts.links)} links are broken: {named}{more}",
        "open all TCP ports between the nodes (firewall, security group), or give each "
        "node a reachable address with `syncline start --node-ip-address`",
    )


def gloo(facts: Examination) -> Result:
    """Check Gloo, through which CPUs communicate."""
    if facts.gloo is None:
        return Result("skipped", "not every node has torch")
    if not facts.gloo.errors:
        return Result(
            "ok",
            f"an all-reduce over {_count(len(facts.nodes), 'node')} took "
            f"{facts.gloo.seconds:.2f} s",
        )
    if any(link.error for link in facts.links):
        remedy = "repair the network first"
    else:
        remedy = (
            "set GLOO_SOCKET_IFNAME on every node to the interface with its address, and check "
            "that its host name resolves to that address"
        )
    return Result("wrong", "the all-reduce failed on " + _each(facts.gloo.errors), remedy)


def storage(facts: Examination) -> Result:
    """Check that all nodes can write and read checkpoints."""
    found = facts.storage
    if found is None:
        return Result("skipped", "no node answers")
    if found.write_error is not None:
        return Result(
            "wrong",
            f"{found.writer} cannot write to {found.path}: {found.write_error}",
            "correct its permissions, or choose another with --storage-path and "
            "RunConfig(storage_path=…)",
        )
    if found.unseen:
        return Result(
            "wrong",
            f"a file that {found.writer} wrote to {found.path} is not readable on "
            f"{_each(found.unseen)}",
            "use storage that every node can access: a shared filesystem mounted at the "
            "same path, or a URI such as s3://bucket/runs",
        )
    seen = (
        "is writable" if len(facts.nodes) == 1 else f"is readable on all {len(facts.nodes)} nodes"
    )
    return Result("ok", f"{found.path} {seen}")


def shared_memory(facts: Examination) -> Result:
    """Check the shared memory, which holds objects."""
    spaces = {name: node.shared_memory for name, node in facts.nodes.items()}
    present = {name: space for name, space in spaces.items() if space is not None}
    remedy = (
        "in a container: --shm-size=8g (Docker), an emptyDir with medium Memory at /dev/shm "
        "(Kubernetes); else mount it with a larger size"
    )
    if len(present) < len(spaces):
        missing = [name for name, space in spaces.items() if space is None]
        return Result("warning", f"no /dev/shm on {_names(missing)}", remedy)
    full = {
        name: _room(space)
        for name, space in present.items()
        if space.free_bytes < LEAST_FREE_SHARED_BYTES
    }
    if full:
        return Result("wrong", _each(full), f"remove files of old programs from /dev/shm; {remedy}")
    small = {
        name: _room(space)
        for name, space in present.items()
        if space.total_bytes < LEAST_SHARED_BYTES
    }
    if small:
        return Result("warning", "objects are stored on disk: " + _each(small), remedy)
    return Result("ok", _least(facts, present))


def open_files(facts: Examination) -> Result:
    """Check the limit of open files: every worker, connection and object needs some."""
    few = {
        name: str(node.open_files)
        for name, node in facts.nodes.items()
        if 0 <= node.open_files < ENOUGH_OPEN_FILES
    }
    if few:
        status: Status = (
            "wrong" if any(int(limit) < LEAST_OPEN_FILES for limit in few.values()) else "warning"
        )
        return Result(
            status,
            "the limit per process is too low: " + _each(few),
            "raise it with `ulimit -n 65536` before the start, or in /etc/security/limits.conf",
        )
    least = min(
        (node.open_files for node in facts.nodes.values() if node.open_files >= 0), default=None
    )
    return Result("ok", "unlimited" if least is None else f"{least} per process")


def disk(facts: Examination) -> Result:
    """Check the disk of the temporary directory: logs, spilled objects and packages."""
    spaces = {name: node.temporary for name, node in facts.nodes.items()}
    remedy = (
        "free some space there, or move it: SYNCLINE_TMPDIR, on a cluster "
        "`syncline start --temp-dir`"
    )
    full = {
        name: _room(space) for name, space in spaces.items() if space.free_bytes < LEAST_DISK_BYTES
    }
    if full:
        return Result("wrong", _each(full), remedy)
    tight = {
        name: _room(space)
        for name, space in spaces.items()
        if space.free_bytes < (1 - FULLEST_DISK) * space.total_bytes
    }
    if tight and facts.cluster is not None:
        message = (
            f"more than {FULLEST_DISK:.0%} full, so Ray stores no more objects: {_each(tight)}"
        )
        return Result("warning", message, remedy)
    return Result("ok", _least(facts, spaces))


CHECKS: Mapping[str, Callable[[Examination], Result]] = {
    "nodes": nodes,
    "python": python,
    "syncline": partial(library_version, "syncline", "not installed as a package"),
    "ray": partial(library_version, "ray", "not installed; only clusters need it"),
    "torch": torch_version,
    "gpus": gpus,
    "nccl": nccl,
    "clocks": clocks,
    "network": network,
    "gloo": gloo,
    "storage": storage,
    "shared memory": shared_memory,
    "open files": open_files,
    "disk": disk,
}
"""Checks by subject."""


def _everyone(facts: Examination, of: Callable[[NodeFacts], str]) -> dict[str, str]:
    """Return a fact by node, and of this program if it is separate."""
    found = {name: of(node) for name, node in facts.nodes.items()}
    return found if facts.driver is None else {"this program": of(facts.driver), **found}


def _same(facts: Examination, found: Mapping[str, str]) -> str:
    value = next(iter(found.values()), "no node answers")
    return value if len(facts.nodes) <= 1 else f"{value} everywhere"


def _groups(found: Mapping[str, str]) -> str:
    """ "2.60.0 on a, b; 2.59.0 on c"."""
    values = dict.fromkeys(found.values())
    return "; ".join(
        f"{value} on {_names([name for name, other in found.items() if other == value])}"
        for value in values
    )


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


def _each(found: Mapping[str, str]) -> str:
    """ "a (why), b (why)"."""
    return _names(f"{name}: {why}" for name, why in found.items())


def _models(models: Sequence[str]) -> str:
    return ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))


def _room(space: Space) -> str:
    return f"{size(space.free_bytes)} of {size(space.total_bytes)} free in {space.path}"


def _least(facts: Examination, spaces: Mapping[str, Space]) -> str:
    """Return the node with the least free space."""
    if not spaces:
        return "no node answers"
    name = min(spaces, key=lambda node: spaces[node].free_bytes)
    return (
        _room(spaces[name]) if len(facts.nodes) == 1 else f"at least {_room(spaces[name])} ({name})"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
