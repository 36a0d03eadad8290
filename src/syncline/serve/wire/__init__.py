"""Frames and values between serve's processes.

- `frames`: the unit of every connection. `grpc_frames`: payloads of gRPC calls.
- `connection`: frames on an event loop, after a handshake. `thread_connection`: frames without one.
- `spinning`: when to look for a frame for a moment before sleeping (pure). `loop_spinner`: the same
  on an event loop.
- `values`: Python values, calls and errors as payloads; `shared_values`: large ones in files.
- `routes`: the routing data that the controller publishes.
- `deployment_actor_names`: names of the actors that replicas share.
"""
