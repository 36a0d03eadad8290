"""Replicas: the processes that run user code.

- `process`: the actor, its configuration and its life: construct, listen, reconfigure, drain.
- `controller_connection`: the replica's connection to the controller, renewed after a restart.
- `callers`: frames of callers, from admission to the answer.
- `admission`: the limit of ongoing requests (pure). `ledger`: the calls that have begun, in a file.
- `user_code`: the user's class or function, its methods and hooks; `threads`: its sync methods.
- `handle_calls`: calls of handles. `http_calls`: HTTP requests, as ASGI.
- `asgi`: lifespan of ASGI applications; `http_response`: results as HTTP responses.
- `websocket`: WebSockets of ASGI applications.
- `health`: the watchdog of the event loop.
"""
