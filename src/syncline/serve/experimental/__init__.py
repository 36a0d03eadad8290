"""Request routers for `RequestRouterConfig(request_router_class=...)`, under Ray's names.

Files: `round_robin_router` and `consistent_hash_router`.
"""
