"""Replicas: the processes that run user code.

- `actor`, `replica_config`: the actor and its configuration; `process`: its life: construct,
  listen, reconfigure, drain.
- `dispatcher`: frames of callers, from admission to the answer.
- `admission`: the limit of ongoing requests (pure). `ledger`: the calls that have begun, in a file.
- `user_code`: the user's class or function, its methods and hooks; `threads`: its sync methods;
  `user_statistics`: its hooks that report statistics; `user_frames`: its frames in tracebacks.
- `handle_calls`: calls of handles. `grpc_calls`: calls of gRPC clients.
- `http_calls`: HTTP requests, as ASGI. `http_response`: results as HTTP responses.
- `asgi`: lifespan of ASGI applications; `fastapi_routes`: routes that are methods of the ingress;
  `route_patterns`: their paths.
- `websocket`: WebSockets of ASGI applications.
- `health`: the watchdog of the event loop.
"""
