"""JAX with two real workers: one computation over the devices of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import syncline
from syncline import train
from syncline.train.jax import JaxTrainer

pytest.importorskip("jax")

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def loop(config: dict[str, Any]) -> dict[str, Any]:
    """Fits y = 2x + 1 on rows that are spread over both ranks, by gradients of the mean over all of
    them.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    rank = train.get_context().get_world_rank()
    spread = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))
    mine = np.linspace(0, 1, 8, dtype=np.float32) + rank  # rank 0 has x in [0, 1], rank 1 in [1, 2]
    x, y = (
        jax.make_array_from_process_local_data(spread, values) for values in (mine, 2 * mine + 1)
    )

    @jax.jit
    def step(weights: Any, x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((w[0] * x + w[1] - y) ** 2))(weights)
        return weights - 0.3 * gradient, loss

    weights = jnp.zeros(2)
    for _ in range(config["steps"]):
        weights, loss = step(weights, x, y)
    train.report({"loss": float(loss), "rows": x.size})
    listening = {
        c.laddr.ip
        for c in psutil.Process().net_connections("tcp")
        if c.status == psutil.CONN_LISTEN
    }
    return {
        "weights": np.asarray(weights).tolist(),
        "processes": jax.process_count(),
        "devices": len(jax.devices()),
        "platform": jax.default_backend(),
        "listening": sorted(listening),
    }


def test_two_workers_are_one_computation(tmp_path: Path) -> None:
    result = JaxTrainer(
        loop,
        train_loop_config={"steps": 200},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path)),
    ).fit()
    assert result.return_value["weights"] == pytest.approx([2, 1], abs=0.05)
    assert (result.return_value["processes"], result.return_value["platform"]) == (2, "cpu")
    assert result.return_value["devices"] == 2
    assert result.metrics["rows"] == 16
    assert set(result.return_value["listening"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
