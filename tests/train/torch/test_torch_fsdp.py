"""Sharded, replicated and split models on four ranks: what they train is what one process trains.
Processes are real, the run is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from syncline.train.torch import (
    TorchConfig,
    accelerate,
    backward,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from syncline.train.torch.amp import _scalers
from tests.train.torch.torch_fakes import ProcessGroupOfFakes, session

pytestmark = pytest.mark.processes

RANKS = 4
FEATURES = 4
Weights = dict[str, list[float]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(FEATURES, 8)
        self.down = nn.Linear(8, FEATURES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.as_tensor(self.down(torch.relu(self.up(x))))


class Deep(nn.Module):
    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(FEATURES, 1)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        for block in self.blocks:
            x = block(x)
        y: torch.Tensor = self.head(x)
        return y

    def reset_parameters(self) -> None:
        self.steps.zero_()


class SelfMade(Deep):
    def init_weights(self) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter)
        self.steps.zero_()


@pytest.fixture(scope="module")
def group() -> Iterator[ProcessGroupOfFakes]:
    workers = ProcessGroupOfFakes(RANKS)
    try:
        TorchConfig().backend_cls().on_start(workers, TorchConfig(timeout_s=60))
        yield workers
        TorchConfig().backend_cls().on_shutdown(workers, TorchConfig())
    finally:
        workers.close()


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with session():
        yield
    dist.destroy_process_group()


def whole(model: nn.Module) -> Weights:
    """The model's weights, put together."""
    return {
        name.removeprefix("module."): getattr(value, "full_tensor", lambda value=value: value)()
        .detach()
        .float()
        .flatten()
        .tolist()
        for name, value in model.state_dict().items()
        if not name.endswith("steps")
    }


def fit(model: nn.Module, rank: int, ranks: int, dtype: torch.dtype = torch.float32) -> Weights:
    """Three steps on this rank's part of each batch."""
    optimizer = prepare_optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))
    for step in range(3):
        x = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(step))[rank::ranks]
        backward((model(x.to(dtype)).float() - x.sum(1, keepdim=True)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return whole(model)


def expected() -> Weights:
    torch.manual_seed(0)
    with session():
        return fit(Deep(), 0, 1)


def close(ours: Weights, theirs: Weights, tolerance: float = 1e-5) -> bool:
    return ours.keys() == theirs.keys() and all(
        torch.allclose(torch.tensor(ours[name]), torch.tensor(theirs[name]), atol=tolerance, rtol=0)
        for name in ours
    )


def seeded_by_rank() -> Deep:
    """A model that begins differently on every rank."""
    torch.manual_seed(dist.get_rank())
    return Deep()


def sharded(kwargs: dict[str, Any]) -> tuple[Weights, list[str], float]:
    model = prepare_model(
        seeded_by_rank(), parallel_strategy="fsdp", parallel_strategy_kwargs=kwargs
    )
    units = [
        name for name, module in model.named_modules() if type(module).__name__.startswith("FSDP")
    ]
    kept = sum(cast("Any", parameter).to_local().numel() for parameter in model.parameters()) / sum(
        parameter.numel() for parameter in model.parameters()
    )
    return fit(model, dist.get_rank(), RANKS), units, kept


def test_sharded_model_trains_like_single_process(group: ProcessGroupOfFakes) -> None:
    results = group.execute(sharded, {"activation_checkpointing": True})
    assert all(close(weights, expected()) for weights, _, _ in results)
    assert results[0][1] == ["", "blocks.0", "blocks.1"]
    assert sum(kept for _, _, kept in results) == pytest.approx(1)
    assert max(kept for _, _, kept in results) < 0.4


def hybrid() -> tuple[Weights, float]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    weights, _, kept = sharded({"mesh": mesh, "wrap": {Block}})
    return weights, kept


def test_replicas_of_shards_start_and_stay_equal(group: ProcessGroupOfFakes) -> None:
    results = group.execute(hybrid)
    assert all(close(weights, expected()) for weights, _ in results)
    assert sum(kept for _, kept in results) == pytest.approx(2)


def split_tensors(
    shape: tuple[int, ...], names: tuple[str, ...], strategy: str
) -> tuple[Weights, list[int]]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    kwargs = {
        "mesh": mesh,
        "parallelize_plan": {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()},
    }
    model = prepare_model(
        seeded_by_rank(), parallel_strategy=strategy, parallel_strategy_kwargs=kwargs
    )
    kept = list(model.blocks[0].up.weight.to_local().shape)
    return fit(
        model, mesh.get_coordinate()[0] if len(shape) > 1 else 0, shape[0] if len(shape) > 1 else 1
    ), kept


@pytest.mark.parametrize(
    ("shape", "names", "kept"),
    [
        ((2, 2), ("dp", "tp"), [2, 4]),
        ((2, 1, 2), ("replicate", "shard", "tp"), [4, 4]),
        ((4,), ("tp",), [2, 4]),
    ],
)
def test_tensors_are_split_first_and_then_sharded_or_replicated(
    group: ProcessGroupOfFakes, shape: tuple[int, ...], names: tuple[str, ...], kept: list[int]
) -> None:
    results = group.execute(split_tensors, shape, names, "fsdp")
    assert all(close(weights, expected()) for weights, _ in results)
    assert [shape for _, shape in results] == [kept] * RANKS


def test_single_split_model_is_allowed_with_ddp(group: ProcessGroupOfFakes) -> None:
    assert all(
        close(weights, expected())
        for weights, _ in group.execute(split_tensors, (4,), ("tp",), "ddp")
    )


def refused() -> str:
    with pytest.raises(ValueError) as raised:
        split_tensors((2, 2), ("dp", "tp"), "ddp")
    return str(raised.value)


def test_replicas_of_split_models_are_refused_with_remedy(group: ProcessGroupOfFakes) -> None:
    assert all("(replicas, 1, parts)" in text for text in group.execute(refused))


def replicas_on_a_part_of_a_mesh() -> tuple[int, list[int]]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "other"))
    model = prepare_model(
        Deep(), parallel_strategy_kwargs={"mesh": mesh["dp"], "activation_checkpointing": {Block}}
    )
    assert isinstance(model, DistributedDataParallel)
    model(torch.ones(1, FEATURES)).sum().backward()
    return dist.get_world_size(model.process_group), dist.get_process_group_ranks(
        model.process_group
    )


def test_replicas_are_limited_to_ranks_of_mesh(group: ProcessGroupOfFakes) -> None:
    assert group.execute(replicas_on_a_part_of_a_mesh) == [
        (2, [0, 2]),
        (2, [1, 3]),
        (2, [0, 2]),
        (2, [1, 3]),
    ]


def samples_seen() -> list[float]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    samples = TensorDataset(torch.arange(8.0))
    sampler: DistributedSampler[Any] = DistributedSampler(
        samples, mesh["dp"].size(), mesh["dp"].get_local_rank(), shuffle=False
    )
    return [
        value
        for (batch,) in prepare_data_loader(DataLoader(samples, batch_size=2, sampler=sampler))
        for value in batch.tolist()
    ]


def test_ranks_that_share_tensors_can_read_the_same_samples(group: ProcessGroupOfFakes) -> None:
    even, odd = [0.0, 2.0, 4.0, 6.0], [1.0, 3.0, 5.0, 7.0]
    assert group.execute(samples_seen) == [even, even, odd, odd]


def from_meta(kind: type[nn.Module], names: tuple[str, ...]) -> tuple[Weights, Weights]:
    torch.manual_seed(dist.get_rank())
    with torch.device("meta"):
        model = kind()
    mesh = init_device_mesh("cpu", (2, 2) if len(names) == 2 else (RANKS,), mesh_dim_names=names)
    prepare_model(model, parallel_strategy="fsdp", parallel_strategy_kwargs={"mesh": mesh})
    return whole(model), fit(model, dist.get_rank(), RANKS)


def test_model_of_meta_device_starts_with_values_of_rank_zero(group: ProcessGroupOfFakes) -> None:
    results = group.execute(from_meta, Deep, ("shard",))
    assert all(result == results[0] for result in results)
    first = torch.tensor(results[0][0]["blocks.0.up.weight"]).reshape(8, FEATURES)
    assert (
        len(first.unique(dim=0)) == 8
    )  # no part repeats another, though ranks may draw the same numbers


def test_replicas_of_self_initializing_model_start_and_stay_equal(
    group: ProcessGroupOfFakes,
) -> None:
    results = group.execute(from_meta, SelfMade, ("replicate", "shard"))
    assert all(result == results[0] for result in results)


def low_precision() -> tuple[list[str], Weights]:
    seen: list[str] = []
    model = seeded_by_rank()
    model.blocks[0].up.register_forward_hook(
        lambda module, inputs, output: seen.append(str(output.dtype))
    )
    prepare_model(
        model, parallel_strategy="fsdp", parallel_strategy_kwargs={"mp_policy": "bfloat16"}
    )
    weights = fit(model, dist.get_rank(), RANKS)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    return seen, weights


def test_mixed_precision_computes_low_and_keeps_high_precision_weights(
    group: ProcessGroupOfFakes,
) -> None:
    for seen, weights in group.execute(low_precision):
        assert set(seen) == {"torch.bfloat16"}
        assert close(weights, expected(), tolerance=0.02)


def older_program(strategy: str) -> tuple[bool, Weights]:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    from syncline.train.session import get_session

    accelerate(amp=True)
    try:
        # What a GPU has: gradients that are scaled.
        scaler = _scalers[get_session("test")] = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale(torch.zeros(()))
        model = prepare_model(seeded_by_rank(), parallel_strategy=strategy)
        optimizer = prepare_optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))
        get_optimizer_state_dict(model, optimizer)
        weights = fit(model, dist.get_rank(), RANKS)
        before = whole(model)
        backward(
            model(torch.full((1, FEATURES), float("inf") if dist.get_rank() == 1 else 1.0)).sum()
        )
        optimizer.step()
        return whole(model) == before and scaler.get_scale() < 1024.0, weights
    finally:
        accelerate(amp=False)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_gradient_scaler_skips_steps_on_all_ranks_together(
    group: ProcessGroupOfFakes, strategy: str
) -> None:
    for left_out, weights in group.execute(older_program, strategy):
        assert left_out
        assert close(weights, expected(), tolerance=0.02)


def done_by_hand() -> tuple[Weights, bool]:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(0)
    model = Deep()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    prepared = prepare_model(model, move_to_device=False, parallel_strategy=None)
    return fit(model, dist.get_rank(), RANKS), prepared is model


def test_program_can_use_torch_distributed_directly(group: ProcessGroupOfFakes) -> None:
    assert all(close(weights, expected()) and same for weights, same in group.execute(done_by_hand))


def ignoring() -> tuple[list[str], bool]:
    model = seeded_by_rank()
    kept = model.head.bias
    prepare_model(
        model,
        parallel_strategy="fsdp",
        parallel_strategy_kwargs={"ignored_modules": [model.head], "sync_module_states": False},
    )
    return [
        name for name, parameter in model.named_parameters() if not hasattr(parameter, "placements")
    ], model.head.bias is kept


def test_ignored_parameters_are_unchanged(group: ProcessGroupOfFakes) -> None:
    assert group.execute(ignoring) == [(["head.weight", "head.bias"], True)] * RANKS


@pytest.mark.usefixtures("alone")
def test_single_rank_shards_only_if_options_have_an_effect() -> None:
    for kwargs in ({}, {"reshard_after_forward": True}, {"activation_checkpointing": {Block}}):
        model = prepare_model(Deep(), parallel_strategy="fsdp", parallel_strategy_kwargs=kwargs)
        assert type(model) is Deep
    assert [type(block).__name__ for block in model.blocks] == ["CheckpointWrapper"] * 2
    model = prepare_model(
        Deep(), parallel_strategy="fsdp", parallel_strategy_kwargs={"mp_policy": torch.bfloat16}
    )
    assert model(torch.ones(1, FEATURES)).dtype is torch.bfloat16


def mesh(shape: tuple[int, ...], *names: str) -> Callable[[], DeviceMesh]:
    return lambda: init_device_mesh("cpu", shape, mesh_dim_names=names)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("strategy", "make", "message"),
    [
        (
            "ddp",
            mesh((1, 1), "a", "b"),
            r"2 dimensions for data \(a, b\), but DDP replicates over one",
        ),
        ("fsdp", mesh((1, 1, 1), "a", "b", "c"), r"3 dimensions for data \(a, b, c\)"),
    ],
)
def test_mesh_that_does_not_fit_strategy_is_refused(
    strategy: Any, make: Callable[[], DeviceMesh], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_model(Deep(), parallel_strategy=strategy, parallel_strategy_kwargs={"mesh": make()})


@pytest.mark.usefixtures("alone")
def test_plan_needs_dimension_for_tensor_parallelism() -> None:
    for kwargs in ({}, {"mesh": init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))}):
        with pytest.raises(ValueError, match="`parallelize_plan` needs ranks.*named 'tp'"):
            prepare_model(Deep(), parallel_strategy_kwargs={**kwargs, "parallelize_plan": {}})


def unplanned(strategy: str) -> str:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    with pytest.raises(ValueError) as raised:
        prepare_model(Deep(), parallel_strategy=strategy, parallel_strategy_kwargs={"mesh": mesh})
    return str(raised.value)


def test_mesh_with_tp_needs_a_plan(group: ProcessGroupOfFakes) -> None:
    for strategy in ("ddp", "fsdp"):
        assert all(
            "`mesh` has 4 ranks in its dimension 'tp', but no plan" in text
            for text in group.execute(unplanned, strategy)
        )
