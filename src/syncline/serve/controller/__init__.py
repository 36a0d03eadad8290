"""The controller of serve: decides which replicas and proxies run, and publishes where they are.

Data flows through these files in this order:

- `messages`: messages between the controller and programs, callers, replicas and proxies.
- `process`: `ServeController`, the actor, and functions that find or start it.
"""
