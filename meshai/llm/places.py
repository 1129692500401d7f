"""Where a server stands: inside the house or out on the internet. No name is looked up."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_HOME_SUFFIXES = (".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain", ".fritz.box")
# RFC 6598, carriers' and VPNs' own addresses: not on the public internet.
_SHARED = ipaddress.ip_network("100.64.0.0/10")


def leaves_house(base_url: str) -> bool:
    """True unless the host is this machine, a private address, or a name only a local network knows."""
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "." in host and host != "localhost" and not host.endswith(_HOME_SUFFIXES)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    shared = isinstance(address, ipaddress.IPv4Address) and address in _SHARED
    return not (address.is_private or address.is_loopback or address.is_link_local or shared)


def shown(base_url: str) -> str:
    """The address for logs and status: without user, password and query, which may hold secrets."""
    parts = urlsplit(base_url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"
