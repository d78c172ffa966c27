"""The proxy of an address, from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY (also in lower case), as for curl.

aiohttp's own `trust_env` would also send what ~/.netrc has for a host, and fails beside a key.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from refinery.llms.served.endpoint import UnusableEndpoint


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy. `url` may contain a password and is never shown; `variable` named it and `place` is its host and port."""

    url: str
    variable: str
    place: str


def proxy_for(url: str) -> Proxy | None:
    """The proxy of an address, or None: never for this machine. Raises UnusableEndpoint for a proxy that does not speak HTTP."""
    from urllib.request import getproxies_environment, proxy_bypass

    parts, proxies = urlsplit(url), getproxies_environment()
    scheme = parts.scheme if parts.scheme in proxies else "all"
    if scheme not in proxies or is_this_machine(url) or proxy_bypass(parts.netloc):
        return None
    address, variable = proxies[scheme], f"{scheme.upper()}_PROXY"
    address = address if "://" in address else f"http://{address}"
    proxy = urlsplit(address)
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise UnusableEndpoint(f"{variable} names no HTTP proxy. Write it as http://host:port, or add {parts.hostname} to NO_PROXY.")
    return Proxy(address, variable, proxy.hostname if proxy.port is None else f"{proxy.hostname}:{proxy.port}")


def is_this_machine(url: str) -> bool:
    """Whether an address is of this machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
