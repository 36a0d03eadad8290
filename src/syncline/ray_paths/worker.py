"""`ray._private.worker`: facts about this process under the names of Ray's worker object.

Public ways to the same facts: `get_runtime_context()`, `nodes()` and the result of `init()`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NoReturn

from syncline.core import engine as engines
from syncline.core.engine import RuntimeInfo, current_engine
from syncline.core.ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID, WorkerID
from syncline.core.lifecycle import InitContext, is_program
from syncline.ray_paths.constants import HEAD_NODE_RESOURCE_NAME

SCRIPT_MODE: Final = 0
"""Mode of the program."""
WORKER_MODE: Final = 1
"""Mode of a worker process."""
LOCAL_MODE: Final = 2
"""Mode of the program with `init(local_mode=True)`."""


class Node:
    """This node and its session: `global_worker.node`."""

    @property
    def address_info(self) -> dict[str, str]:
        """Addresses and paths, as `init()` returns them."""
        return InitContext(current_engine()).address_info

    @property
    def address(self) -> str:
        """The cluster's address; "local" on one machine."""
        return current_engine().address

    @property
    def gcs_address(self) -> str:
        """The cluster's address; empty on one machine."""
        return self.address_info["gcs_address"]

    @property
    def node_ip_address(self) -> str:
        """The address of this node."""
        return current_engine().node_address()

    @property
    def unique_id(self) -> str:
        """The id of this node."""
        return current_engine().runtime_info().node_id

    node_id = unique_id

    @property
    def session_name(self) -> str:
        """The name of the session."""
        return current_engine().session_directory.name

    @property
    def webui_url(self) -> str | None:
        """host:port of the cluster's dashboard; None without one."""
        return current_engine().dashboard_url

    def is_head(self) -> bool:
        """Return True if the cluster's head runs on this node; True on one machine."""
        engine = current_engine()
        here = engine.runtime_info().node_id
        return any(
            row["NodeID"] == here and HEAD_NODE_RESOURCE_NAME in row["Resources"]
            for row in engine.nodes()
        )

    def get_session_dir_path(self) -> str:
        """Return the directory of the session."""
        return str(current_engine().session_directory)

    def get_logs_dir_path(self) -> str:
        """Return the directory of the log files."""
        return str(current_engine().session_directory / "logs")

    def get_temp_dir_path(self) -> str:
        """Return the directory that contains the directories of sessions."""
        return str(current_engine().session_directory.parent)

    def __bool__(self) -> bool:
        return engines.current is not None


class GcsClient:
    """Address of the cluster's head: `global_worker.gcs_client`."""

    @property
    def address(self) -> str:
        """The cluster's address; empty on one machine."""
        address = current_engine().address
        return "" if address == "local" else address


class CoreWorker:
    """Ids of the running code: `global_worker.core_worker`."""

    def get_actor_id(self) -> ActorID:
        """Return the id of the actor; the null id outside of one."""
        return global_worker.actor_id

    def get_current_job_id(self) -> JobID:
        """Return the id of the program's run."""
        return global_worker.current_job_id

    def get_current_node_id(self) -> NodeID:
        """Return the id of the node."""
        return global_worker.current_node_id

    def get_current_task_id(self) -> TaskID:
        """Return the id of the task; the null id in the program."""
        return global_worker.current_task_id

    def get_placement_group_id(self) -> PlacementGroupID:
        """Return the id of the placement group; the null id outside of one."""
        return global_worker.placement_group_id

    def get_worker_id(self) -> WorkerID:
        """Return the id of the process."""
        return WorkerID.from_hex(global_worker.info.worker_id)


class GlobalWorker:
    """This process. Facts that need an engine raise RuntimeError before `init()`."""

    def __init__(self) -> None:
        self.node = Node()
        self.gcs_client = GcsClient()
        self.core_worker = CoreWorker()

    @property
    def info(self) -> RuntimeInfo:
        """Facts about the calling thread."""
        return current_engine().runtime_info()

    @property
    def connected(self) -> bool:
        """True if syncline runs."""
        return engines.current is not None

    is_connected = connected

    @property
    def mode(self) -> int | None:
        """SCRIPT_MODE, WORKER_MODE or LOCAL_MODE; None if syncline does not run."""
        engine = engines.current
        if engine is None:
            return None
        if engine.is_local_mode:
            return LOCAL_MODE
        return SCRIPT_MODE if is_program() else WORKER_MODE

    def check_connected(self) -> None:
        """Raise RuntimeError if syncline does not run."""
        current_engine()

    @property
    def worker_id(self) -> bytes:
        """The id of the process."""
        return bytes.fromhex(self.info.worker_id)

    @property
    def current_job_id(self) -> JobID:
        """The id of the program's run."""
        return JobID.from_hex(self.info.job_id)

    job_id = current_job_id

    @property
    def current_node_id(self) -> NodeID:
        """The id of the node."""
        return NodeID.from_hex(self.info.node_id)

    @property
    def current_task_id(self) -> TaskID:
        """The id of the task; the null id in the program."""
        found = self.info.task_id
        return TaskID.nil() if found is None else TaskID.from_hex(found)

    task_id = current_task_id

    @property
    def actor_id(self) -> ActorID:
        """The id of the actor; the null id outside of one."""
        found = self.info.actor_id
        return ActorID.nil() if found is None else ActorID.from_hex(found)

    @property
    def placement_group_id(self) -> PlacementGroupID:
        """The id of the placement group; the null id outside of one."""
        found = self.info.placement_group_id
        if found is None:
            return PlacementGroupID.nil()
        return PlacementGroupID.from_hex(f"{found:032x}")

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """True if submitted tasks run in the current placement group."""
        return self.info.captures_child_tasks

    @property
    def namespace(self) -> str:
        """The default namespace of actor names."""
        return self.info.namespace

    @property
    def node_ip_address(self) -> str:
        """The address of this node."""
        return self.node.node_ip_address

    @property
    def session_directory(self) -> Path:
        """The directory of the session."""
        return current_engine().session_directory

    def __reduce__(self) -> str:
        return "global_worker"  # tasks that mention it get that of their process

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(each for each in dir(type(self)) if not each.startswith("_"))
        raise AttributeError(
            f"`global_worker.{name}` is internal to Ray and does not exist here. `global_worker` "
            f"has {', '.join(known)}; see also `syncline.get_runtime_context()`."
        )


global_worker = GlobalWorker()
"""This process, in every process."""
_global_node = global_worker.node


def get_dashboard_url() -> str | None:
    """Return host:port of the cluster's dashboard; None without one."""
    return current_engine().dashboard_url
