"""Client of `ray.serve.RayServeAPIService`, which every gRPC proxy serves."""

from __future__ import annotations

from typing import Any

from syncline.serve.generated import serve_pb2

_SERVICE = "ray.serve.RayServeAPIService"


class RayServeAPIServiceStub:
    """Calls the service."""

    def __init__(self, channel: Any) -> None:
        """`channel` is a `grpc.Channel` or a `grpc.aio.Channel`."""
        self.ListApplications = channel.unary_unary(
            f"/{_SERVICE}/ListApplications",
            request_serializer=serve_pb2.ListApplicationsRequest.SerializeToString,
            response_deserializer=serve_pb2.ListApplicationsResponse.FromString,
        )
        """Return the names of the applications."""
        self.Healthz = channel.unary_unary(
            f"/{_SERVICE}/Healthz",
            request_serializer=serve_pb2.HealthzRequest.SerializeToString,
            response_deserializer=serve_pb2.HealthzResponse.FromString,
        )
        """Return "success", or the status UNAVAILABLE while the proxy starts or drains."""
