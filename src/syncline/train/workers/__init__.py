"""Training workers: `spec` (what one is told), `placement` (resources for all), `group` and
`inline` (starts and follows them), `ranks` (who is who), `worker` (the actor), `session` (what the
training function talks to), `send_buffer`, `output` and `messages` (what travels), `stacks` and
`profiling/` (looks at it while it trains).
"""
