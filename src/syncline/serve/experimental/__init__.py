"""Request routers for `RequestRouterConfig(request_router_class=...)`, under Ray's names."""
