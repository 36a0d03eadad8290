"""Workers become one process group; models and loaders are prepared in it. Processes are real, the
run is not.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from syncline.train.backend import GroupPlan
from syncline.train.torch import TorchConfig, prepare_data_loader, prepare_model
from syncline.train.torch.process_group import default_environment, join, leave, rank_environment
from syncline.train.torch_backend import TorchBackend, refuse_shared_gpus
from tests.train.torch.torch_fakes import FakeWorker, ProcessGroupOfFakes, session

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def group() -> Iterator[ProcessGroupOfFakes]:
    workers = ProcessGroupOfFakes(2)
    try:
        TorchConfig().backend_cls().on_start(workers, TorchConfig(timeout_s=60))
        yield workers
        TorchConfig().backend_cls().on_shutdown(workers, TorchConfig())
        assert workers.execute(dist.is_initialized) == [False, False]
    finally:
        workers.close()


def facts() -> tuple[str, int, int]:
    return dist.get_backend(), dist.get_rank(), dist.get_world_size()


def sum_of_ranks() -> float:
    tensor = torch.tensor(float(dist.get_rank() + 1))
    dist.all_reduce(tensor)
    return tensor.item()


def variables(names: list[str]) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in names}


def listening_addresses() -> set[str]:
    return {
        connection.laddr.ip
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def new_group_from_environment() -> float:
    leave()
    dist.init_process_group("gloo", init_method="env://")
    return sum_of_ranks()


def threads_in_a_new_thread() -> int:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return seen[0]


def train() -> tuple[bool, list[float], int]:
    torch.manual_seed(dist.get_rank())
    model = prepare_model(nn.Linear(2, 1))
    features = torch.arange(16.0).reshape(8, 2)
    loader = prepare_data_loader(
        DataLoader(
            TensorDataset(features, features.sum(1, keepdim=True)), batch_size=2, shuffle=True
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    steps = 0
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            steps += 1
    return (
        isinstance(model, DistributedDataParallel),
        [p.sum().item() for p in model.module.parameters()],
        steps,
    )


def prepared_types() -> list[str]:
    plain = prepare_model(nn.Linear(2, 1), parallel_strategy=None)
    frozen_graph = prepare_model(nn.Linear(2, 1), parallel_strategy_kwargs={"static_graph": True})
    return [type(plain).__name__, str(frozen_graph.static_graph)]


@pytest.mark.promise
def test_all_ranks_are_in_one_gloo_group(group: ProcessGroupOfFakes) -> None:
    assert group.execute(facts) == [("gloo", 0, 2), ("gloo", 1, 2)]
    assert group.execute(sum_of_ranks) == [3.0, 3.0]


def test_environment_has_ranks(group: ProcessGroupOfFakes) -> None:
    names = [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
    ]
    names += ["ACCELERATE_TORCH_DEVICE", "ACCELERATE_USE_CPU", "OMP_NUM_THREADS"]
    first, second = group.execute(variables, names)
    assert [first.pop(name) for name in ("RANK", "LOCAL_RANK")] == ["0", "0"]
    assert [second.pop(name) for name in ("RANK", "LOCAL_RANK")] == ["1", "1"]
    assert first == second
    assert int(first.pop("MASTER_PORT")) > 0
    assert int(first.pop("OMP_NUM_THREADS")) == group.execute(torch.get_num_threads)[0]
    assert first == {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "0",
        "ACCELERATE_TORCH_DEVICE": "cpu",
        "ACCELERATE_USE_CPU": "True",
        "MASTER_ADDR": "127.0.0.1",
    }


def test_workers_of_one_node_listen_on_loopback_only(group: ProcessGroupOfFakes) -> None:
    assert set().union(*group.execute(listening_addresses)) <= {
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
    }


def test_workers_share_cores_also_in_training_thread(group: ProcessGroupOfFakes) -> None:
    alone = ProcessGroupOfFakes(1)
    try:
        cores = alone.execute(torch.get_num_threads)[0]
    finally:
        alone.close()
    assert group.execute(threads_in_a_new_thread) == [max(1, cores // 2)] * 2


@pytest.mark.promise
def test_prepared_model_stays_equal_on_all_ranks(group: ProcessGroupOfFakes) -> None:
    first, second = group.execute(train)
    assert first == second
    wrapped, _, steps = first
    assert wrapped
    assert steps == 4


def test_strategy_determines_wrapper_of_model(group: ProcessGroupOfFakes) -> None:
    assert group.execute(prepared_types) == [["Linear", "True"]] * 2


def test_group_can_be_created_from_environment() -> None:
    workers = ProcessGroupOfFakes(2)
    try:
        TorchBackend().on_start(workers, TorchConfig(backend="gloo", timeout_s=60))
        assert workers.execute(new_group_from_environment) == [3.0, 3.0]
    finally:
        workers.close()


def test_single_worker_has_group_and_tcp_publishes_no_address() -> None:
    workers = ProcessGroupOfFakes(1)
    try:
        TorchBackend().on_start(workers, TorchConfig(init_method="tcp", timeout_s=60))
        assert workers.execute(facts) == [("gloo", 0, 1)]
        assert workers.execute(variables, ["MASTER_ADDR", "MASTER_PORT"]) == [
            {"MASTER_ADDR": None, "MASTER_PORT": None}
        ]
    finally:
        workers.close()


def test_unknown_backend_is_refused() -> None:
    workers = ProcessGroupOfFakes(1)
    try:
        with pytest.raises(
            RuntimeError,
            match=r"Rank 0 of 1 could not join the process group at 127.0.0.1:\d+ \(backend='glu'",
        ):
            TorchBackend().on_start(workers, TorchConfig(backend="glu", timeout_s=60))
    finally:
        workers.close()


def test_leave_without_group_does_nothing() -> None:
    leave()


def as_torchrun(port: int, rank: int) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        WORLD_SIZE="2",
        GLOO_SOCKET_IFNAME="lo",
    )
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")


def run_in_context() -> float:
    with TorchConfig(timeout_s=60).train_func_context():
        return sum_of_ranks()


def fail_in_context() -> None:
    with TorchConfig(timeout_s=60).train_func_context():
        assert facts() == ("gloo", 0, 1)
        assert os.environ["WORLD_SIZE"] == "1"
        raise KeyError("the training function failed")


def test_function_in_this_process_has_group_and_restores_environment() -> None:
    worker = FakeWorker(rank=0, pid=os.getpid(), hostname=socket.gethostname())
    before, excepthook = dict(os.environ), sys.excepthook
    for _ in range(2):
        with session():
            TorchBackend().on_start(SimpleNamespace(workers=[worker]), TorchConfig())
            with pytest.raises(KeyError, match="the training function"):
                fail_in_context()
        assert not dist.is_initialized()
        assert dict(os.environ) == before
        assert sys.excepthook is excepthook


def test_existing_group_is_kept_in_local_mode() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with session(local_mode=True), TorchConfig().train_func_context():
            assert facts() == ("gloo", 0, 1)
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_local_mode_joins_processes_of_torchrun() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    workers = ProcessGroupOfFakes(2)
    try:
        for rank in range(2):
            workers.execute_single(rank, as_torchrun, store.port, rank)
        assert workers.execute(run_in_context) == [3.0, 3.0]
        assert workers.execute(dist.is_initialized) == [False, False]
    finally:
        workers.close()


def plan(**changes: Any) -> GroupPlan:
    return GroupPlan(
        **{
            "backend": "gloo",
            "host": "h",
            "port": 1,
            "timeout_s": 5.0,
            "publish_address": True,
            "loopback": True,
            **changes,
        }
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPUs")
def test_nccl_without_gpu_names_remedy() -> None:
    with session(), pytest.raises(RuntimeError, match="TorchConfig\\(backend='gloo'\\)"):
        join(plan(backend="nccl"))


def test_unreachable_peer_is_named_with_rank_and_address() -> None:
    workers = ProcessGroupOfFakes(2)
    try:
        with pytest.raises(
            RuntimeError, match="Rank 1 of 2 could not join the process group at 127.0.0.1:1 "
        ):
            workers.execute_single(1, join, plan(host="127.0.0.1", timeout_s=1.0))
    finally:
        workers.close()


def test_loopback_is_used_on_one_node_only() -> None:
    assert default_environment(plan())["GLOO_SOCKET_IFNAME"].startswith("lo")
    assert default_environment(plan(loopback=False)) == {"TORCH_FR_BUFFER_SIZE": "128"}
    assert default_environment(plan(backend="nccl", loopback=False)) == {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"
    }


def test_address_is_published_for_env_only() -> None:
    with session() as fake:
        assert rank_environment(fake, plan(host="10.0.0.1", port=29)).items() >= {
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "29"),
        }
        assert "MASTER_ADDR" not in rank_environment(fake, plan(publish_address=False))


def test_ranks_that_share_a_gpu_cannot_use_nccl() -> None:
    shared = [FakeWorker(rank=rank, gpu_ids=["0"]) for rank in range(2)]
    with pytest.raises(ValueError, match="Ranks 0 and 1 share GPU 0"):
        refuse_shared_gpus(shared)
    separate = [FakeWorker(rank=rank, gpu_ids=[str(rank)]) for rank in range(2)]
    refuse_shared_gpus(separate)
    on_nodes = [FakeWorker(rank=rank, gpu_ids=["0"], node_id=f"node-{rank}") for rank in range(2)]
    refuse_shared_gpus(on_nodes)


def test_several_nodes_use_exact_interface_name() -> None:
    plan = GroupPlan(
        backend="gloo", host="10.1.2.3", port=1, timeout_s=60, publish_address=True, loopback=False
    )
    assert default_environment(plan, "eth1") == {
        "TORCH_FR_BUFFER_SIZE": "128",
        "GLOO_SOCKET_IFNAME": "eth1",
        "NCCL_SOCKET_IFNAME": "=eth1",
    }
    assert default_environment(plan, None) == {"TORCH_FR_BUFFER_SIZE": "128"}
