"""Serving on this machine: requests over HTTP, calls of handles, streams, replicas, a soak.

Ray is measured once where its values are far from the others', because each of its starts takes
many seconds. "First 200" is the time from the start of the server's process to its first answer.
"""

from bench.rows.definitions import OURS, RAY, Better, Contender, Metric, Row, Target

_HAPROXY = "Ray behind HAProxy"
_LITSERVE = "LitServe"
_BENTOML = "BentoML"
_UVICORN = "uvicorn"
_BATCHER = "uvicorn and a batcher"
_RAY_INTERVALS = {
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.1",
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.1",
}


def _metric(key: str, label: str, unit: str, better: Better, target: Target | None) -> Metric:
    return Metric(key=key, label=label, unit=unit, better=better, target=target)


def _more(key: str, label: str, unit: str = "/s", target: Target | None = None) -> Metric:
    return _metric(key, label, unit, "more", target)


def _less(key: str, label: str, unit: str, target: Target | None = None) -> Metric:
    return _metric(key, label, unit, "less", target)


def _http(name: str, contender: str, app: str, max_runs: int | None = None) -> Contender:
    return Contender(
        name=name, module="serve.http", argument=f"{contender}-{app}", max_runs=max_runs
    )


def _first_200(peer: str) -> Metric:
    return _less("first_s", "process start to the first 200", "s", Target(limit=1.2, peers=(peer,)))


def _latency(connections: int) -> tuple[Metric, Metric]:
    return (
        _less(f"p50_{connections}_ms", f"{connections} connections, p50", "ms"),
        _less(f"p99_{connections}_ms", f"{connections} connections, p99", "ms"),
    )


def _cpu(connections: int, label: str = "", target: Target | None = None) -> Metric:
    name = f"{connections} connections, CPU time of a request{label}"
    return _less(f"cpu_{connections}_us", name, "us", target)


ROWS: tuple[Row, ...] = (
    Row(
        name="serve_echo",
        group="serve",
        contenders=(
            _http(OURS, "syncline", "echo"),
            _http(RAY, "ray", "echo"),
            _http(_HAPROXY, "haproxy", "echo"),
            _http(_LITSERVE, "litserve", "echo"),
            _http(_BENTOML, "bentoml", "echo"),
            _http(_UVICORN, "uvicorn", "echo"),
        ),
        metrics=(
            _first_200(_UVICORN),
            _more("rate_1", "echo, 1 connection"),
            _less(
                "p50_1_ms",
                "1 connection, p50",
                "ms",
                Target(limit=1.0, peers=(_UVICORN,), plus=0.3),
            ),
            _less("p99_1_ms", "1 connection, p99", "ms"),
            _more("rate_16", "16 connections", target=Target(limit=0.8, peers=(_UVICORN,))),
            *_latency(16),
            _cpu(16, ", against Ray", Target(limit=1 / 60, peers=(RAY,))),
            _cpu(16, ", against Ray behind HAProxy", Target(limit=1 / 7, peers=(_HAPROXY,))),
            _more("rate_64", "64 connections", target=Target(limit=0.8, peers=(_UVICORN,))),
            *_latency(64),
            _cpu(64),
        ),
        timeout_s=240.0,
    ),
    Row(
        name="serve_fastapi",
        group="serve",
        contenders=(
            _http(OURS, "syncline", "fastapi"),
            _http(RAY, "ray", "fastapi", 1),
            _http(_UVICORN, "uvicorn", "fastapi"),
        ),
        metrics=(
            _first_200(_UVICORN),
            _more("rate_1", "FastAPI echo, 1 connection"),
            _less("p50_1_ms", "1 connection, p50", "ms"),
            _more("rate_16", "16 connections", target=Target(limit=0.9, peers=(_UVICORN,))),
            *_latency(16),
            _cpu(16),
            _more("rate_64", "64 connections", target=Target(limit=0.9, peers=(_UVICORN,))),
            *_latency(64),
            _cpu(64),
        ),
        timeout_s=240.0,
    ),
    Row(
        name="serve_batched",
        group="serve",
        contenders=(
            _http(OURS, "syncline", "batched"),
            _http(RAY, "ray", "batched", 1),
            _http(_LITSERVE, "litserve", "batched"),
            _http(_BATCHER, "uvicorn", "batched"),
        ),
        metrics=(
            _first_200(_BATCHER),
            _more("rate_1", "small ViT, batches of up to 16 after 5 ms, 1 connection"),
            _more("rate_16", "16 connections"),
            *_latency(16),
            _more(
                "rate_64",
                "64 connections, against the batcher",
                target=Target(limit=0.9, peers=(_BATCHER,)),
            ),
            _more(
                "rate_64",
                "64 connections, against LitServe",
                target=Target(limit=8.0, peers=(_LITSERVE,)),
            ),
            *_latency(64),
            _cpu(64),
        ),
        timeout_s=240.0,
    ),
    Row(
        name="serve_adaptive",
        group="serve",
        contenders=(Contender(name=OURS, module="serve.adaptive", argument="syncline"),),
        metrics=tuple(
            metric
            for connections in (1, 16, 64)
            for metric in (
                _more(f"auto_{connections}", f'wait "auto", {connections} connections'),
                _more(f"fixed_{connections}", "best fixed wait (0, 1, 2, 5, 10 ms)"),
                _less(f"fixed_{connections}_ms", "that wait", "ms"),
                _more(f"ratio_{connections}", '"auto" relative to it', "", Target(limit=0.9)),
            )
        ),
        timeout_s=180.0,
    ),
    Row(
        name="serve_handles",
        group="serve",
        contenders=(
            Contender(name=OURS, module="serve.handles", argument="syncline"),
            Contender(name=RAY, module="serve.handles", argument="ray", max_runs=1),
        ),
        metrics=(
            _more(
                "one_per_s",
                "handle calls of the program, one at a time",
                target=Target(limit=20_000),
            ),
            _more("many_per_s", "1 000 in flight"),
            _more("replica_one_per_s", "handle calls of a replica, one at a time"),
            _more("replica_many_per_s", "64 in flight"),
            _less("chain_ms", "chain of three deployments, p50", "ms"),
            _less("hop_ms", "same, each further deployment", "ms", Target(limit=0.3)),
        ),
        timeout_s=240.0,
    ),
    Row(
        name="serve_streams",
        group="serve",
        contenders=(
            Contender(name=OURS, module="serve.streams", argument="syncline"),
            Contender(name=RAY, module="serve.streams", argument="ray", max_runs=1),
            Contender(name=_UVICORN, module="serve.streams", argument="uvicorn"),
        ),
        metrics=(
            _less(
                "paced_first_p50_ms",
                "64 streams of 100 chunks, one in 5 ms: first chunk, p50",
                "ms",
            ),
            _less("paced_first_p99_ms", "first chunk, p99", "ms", Target(limit=20.0)),
            _more("paced_per_s", "chunks (at most 12 800)"),
            _less("paced_cpu_us", "CPU time of a chunk", "us"),
            _less("fast_first_p50_ms", "same without pauses: first chunk, p50", "ms"),
            _less("fast_first_p99_ms", "first chunk, p99", "ms"),
            _more("fast_per_s", "chunks"),
            _less("fast_cpu_us", "CPU time of a chunk", "us"),
        ),
        timeout_s=240.0,
    ),
    Row(
        name="serve_scaling",
        group="serve",
        contenders=(
            Contender(name=OURS, module="serve.scaling", argument="syncline"),
            Contender(name=RAY, module="serve.scaling", argument="ray", max_runs=1),
        ),
        metrics=(
            _less(
                "one_more_s",
                "torch model: from `serve.run` with one more replica to its answer",
                "s",
                Target(limit=0.3),
            ),
            _less("burst_s", "start of a burst until the second replica answers", "s"),
            _less("from_zero_s", "call without a replica until its answer", "s", Target(limit=0.5)),
        ),
        timeout_s=300.0,
        environment=_RAY_INTERVALS,
    ),
    Row(
        name="serve_soak",
        group="serve",
        contenders=(Contender(name=OURS, module="serve.soak", argument="syncline", max_runs=1),),
        metrics=(
            _more("requests", "requests while replicas are replaced and clients disconnect", ""),
            _less("failed", "failed requests", "", Target(limit=0)),
            _more("left", "clients that disconnected", ""),
            _more("rate", "requests per second"),
            _less("memory_mb", "memory of all processes afterwards (USS)", "MB"),
            _less("memory_growth_mb", "growth of memory", "MB", Target(limit=10.0)),
            _less("descriptor_growth", "growth of descriptors", "", Target(limit=0)),
            _less("thread_growth", "growth of threads", "", Target(limit=0)),
            _less("process_growth", "growth of processes", "", Target(limit=0)),
        ),
        timeout_s=7200.0,
    ),
)
