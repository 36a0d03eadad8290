"""Messages and stubs of serve's own gRPC service, under the names of Ray's generated code.

Files: `serve_pb2` (messages) and `serve_pb2_grpc` (stubs and servicers).
"""
