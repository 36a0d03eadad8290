"""`RayKeyValues`: the key-value store of the cluster's head, as `KeyValues`."""

from __future__ import annotations

from ray.experimental import internal_kv

from syncline.core.key_values import KeyValues


class RayKeyValues(KeyValues):
    """See `KeyValues`. Values live as long as the cluster."""

    def get(self, key: bytes, namespace: bytes = b"") -> bytes | None:
        value: bytes | None = internal_kv._internal_kv_get(key, namespace=namespace or None)
        return value

    def put(
        self, key: bytes, value: bytes, namespace: bytes = b"", *, overwrite: bool = True
    ) -> bool:
        return bool(
            internal_kv._internal_kv_put(key, value, overwrite, namespace=namespace or None)
        )

    def delete(self, key: bytes, namespace: bytes = b"") -> bool:
        return bool(internal_kv._internal_kv_del(key, namespace=namespace or None))

    def keys(self, prefix: bytes = b"", namespace: bytes = b"") -> list[bytes]:
        return sorted(internal_kv._internal_kv_list(prefix, namespace=namespace or None))
