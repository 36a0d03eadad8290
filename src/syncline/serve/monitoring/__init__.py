"""Statistics, records, metrics and traces of a running serve.

Data flows from the processes that handle requests to the controller, which writes them:

- `histogram`: times in logarithmic buckets; pure
- `slowest`: the slowest calls of a period; pure
- `reports`: messages to the controller, once a second
- `call_times`: measurements in a replica
- `request_times`: measurements in a proxy
- `access_log`: one line per request, written by a thread of the proxy
- `history`: one line per deployment and second from the reports; pure
- `request_traces`: slow requests, from the parts that proxies and replicas measured; pure
- `recorder`: the run directory `serve-NAME`, written by a thread of the controller
- `metrics`: Prometheus metrics from the reports; pure

The hot path appends a number to a list and compares another one with a limit; all else happens once
a second, in the reporter of each process.
"""
