"""Names of Ray's tracing of tasks, which is refused; `timeline()` shows what ran where and when.

- `setup_local_tmp_tracing`, `setup_tempo_tracing`: startup hooks
- `tracing_helper`: says that tracing is off

Traces of requests are part of serve.
"""
