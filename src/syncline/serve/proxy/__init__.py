"""The proxy of a node: HTTP, WebSockets and gRPC of clients to the replicas of applications.

A request goes through the modules in this order:

- `actor`, `proxy_config`: the actor and its configuration; `process`: its start, drain and end
- `listening`: the listening socket, TLS, and the limit of connections
- `http_protocol`: a connection of a client
- `request_parser`: bytes to requests, within the limits of `limits`
- `routes`: path to application
- `requests`: a request as a call of the link
- `body_stream`: long bodies, and bytes of WebSocket clients
- `responses`: responses that the proxy writes itself
- `server`: state that the connections share
- `statistics`: counters and latency histograms
- `grpc_server`, `grpc_services`, `grpc_calls`: requests of gRPC clients
"""
