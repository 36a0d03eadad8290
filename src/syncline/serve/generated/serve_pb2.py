"""Messages of `ray.serve.RayServeAPIService`, for clients that ask a proxy for its state.

The package of the messages is Ray's, because clients of Ray Serve call the service by that name. A
descriptor pool of our own keeps them apart from Ray's messages of the same names in one process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "ray.serve"


def _message(name: str, *fields: tuple[str, Any]) -> DescriptorProto:
    return DescriptorProto(
        name=name,
        field=[
            FieldDescriptorProto(
                name=field, number=i, label=label, type=FieldDescriptorProto.TYPE_STRING
            )
            for i, (field, label) in enumerate(fields, 1)
        ],
    )


_pool = DescriptorPool()
_pool.Add(
    FileDescriptorProto(
        name="syncline/serve.proto",
        package=_PACKAGE,
        syntax="proto3",
        message_type=[
            _message("ListApplicationsRequest"),
            _message(
                "ListApplicationsResponse",
                ("application_names", FieldDescriptorProto.LABEL_REPEATED),
            ),
            _message("HealthzRequest"),
            _message("HealthzResponse", ("message", FieldDescriptorProto.LABEL_OPTIONAL)),
        ],
    )
)


def _class(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


ListApplicationsRequest = _class("ListApplicationsRequest")
ListApplicationsResponse = _class("ListApplicationsResponse")
HealthzRequest = _class("HealthzRequest")
HealthzResponse = _class("HealthzResponse")
