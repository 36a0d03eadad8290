"""The network interface of an address."""

from types import SimpleNamespace

from syncline.core.host import interface_of


def owns(*addresses: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(address=address) for address in addresses]


def test_interface_is_the_one_that_has_the_address() -> None:
    interfaces = {
        "lo": owns("127.0.0.1", "::1"),
        "docker0": owns("172.17.0.1"),
        "eth1": owns("10.1.2.3", "fe80::1%eth1"),
    }
    assert interface_of("10.1.2.3", interfaces) == "eth1"
    assert interface_of("fe80::1", interfaces) == "eth1"
    assert interface_of("203.0.113.9", interfaces) is None


def test_this_machine_has_the_loopback_address_only() -> None:
    assert interface_of("127.0.0.1")
    assert interface_of("192.0.2.255") is None
