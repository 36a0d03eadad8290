"""Batched inference with several fixed waits and with the adaptive one, in one server.

The waits take turns, so that other load on the machine affects all of them.
"""

import statistics

from bench.programs import common
from bench.programs.serve import http, load, server
from bench.programs.serve.apps.options import AUTO, WAITS_S

TURNS = 3
SECONDS = 1


def measure(contender: str) -> common.Values:
    """Return the adaptive wait's rates, and their ratios to the best fixed wait's."""
    _, body = http.request(contender, "batched")
    values: common.Values = {}
    with server.running(contender, "waits", f"/{AUTO}", body) as target:
        for connections in http.CONNECTIONS:
            rates: dict[str, list[float]] = {name: [] for name in (*WAITS_S, AUTO)}
            for _ in range(TURNS):
                for name, own in rates.items():
                    outcome = load.generate(
                        target.url(f"/{name}"), body, connections=connections, seconds=SECONDS
                    )
                    own.append(outcome.rate)
            medians = {name: statistics.median(own) for name, own in rates.items()}
            best = max(WAITS_S, key=medians.__getitem__)
            print(f"user: {connections} connections: {medians}")
            values[f"auto_{connections}"] = medians[AUTO]
            values[f"fixed_{connections}"] = medians[best]
            values[f"fixed_{connections}_ms"] = WAITS_S[best] * 1e3
            values[f"ratio_{connections}"] = medians[AUTO] / medians[best]
    return values


if __name__ == "__main__":
    options = common.arguments()
    common.write(options.out, measure(options.library))
