"""Messages and stubs of serve's own gRPC service, under the names of Ray's generated code."""
