"""64 concurrent streams of 100 chunks: paced like tokens of a model, and as fast as possible."""

import asyncio
import statistics

from bench.programs import common
from bench.programs.serve import server, stream_client
from bench.programs.serve.load import Body

STREAMS = 64
TURNS = 4


def percentile(ordered: list[float], percent: float) -> float:
    """Return a percentile of sorted values, the nearest of them."""
    return ordered[round((len(ordered) - 1) * percent / 100)]


def measure(contender: str) -> common.Values:
    """Return the values of one contender: those of the first turn are dropped."""
    values: common.Values = {}
    with server.running(contender, "streams", "/fast", Body(content=b"")) as target:
        for path in ("paced", "fast"):
            before = target.cpu_seconds()
            turns = asyncio.run(
                stream_client.read(target.port, f"/{path}", streams=STREAMS, turns=TURNS)
            )
            cpu_s = target.cpu_seconds() - before
            firsts = sorted(value for turn in turns[1:] for value in turn.first_chunk_s)
            values |= {
                f"{path}_first_p50_ms": percentile(firsts, 50) * 1e3,
                f"{path}_first_p99_ms": percentile(firsts, 99) * 1e3,
                f"{path}_per_s": statistics.median(
                    turn.chunks / turn.seconds for turn in turns[1:]
                ),
                f"{path}_cpu_us": cpu_s / sum(turn.chunks for turn in turns) * 1e6,
            }
    return values


if __name__ == "__main__":
    options = common.arguments()
    common.write(options.out, measure(options.library))
