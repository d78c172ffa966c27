"""Post requests over connections that respect the environment: its proxies, its certificates, and redirects within one server.

The key and the prompts go to no other server. `connection_errors.py` says what a failed connection means.
"""

import json
import logging
import os
from typing import Any
from urllib.parse import urljoin, urlsplit

from refinery.llms.served.transport.connection_errors import certificate_fault, fault_of_connection, fault_of_proxy
from refinery.llms.served.transport.proxies import Proxy, proxy_for
from refinery.llms.served.wire.responses import Response, RetryableFault

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 30.0
_MOST_REDIRECTS = 3
_KEEPS_METHOD = (307, 308)
_PERMANENT = 308
# aiohttp's own limits are 8,190 bytes, less than gateways send with their cookies and policies.
LONG_HEADERS: Any = {"max_line_size": 65_536, "max_field_size": 65_536}
_PORTS = {"http": 80, "https": 443}
# What `requests` and curl read; OpenSSL itself reads SSL_CERT_FILE.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class HttpSession:
    """The open connections of one endpoint. It opens none before the first request."""

    def __init__(self) -> None:
        self._session: Any = None
        self._proxies: dict[str, Proxy | None] = {}
        self._moved: dict[str, str] = {}

    async def post(self, url: str, content: bytes, headers: dict[str, str], *, seconds: float) -> Response:
        """The response to a POST. Raises RetryableFault, or UnusableEndpoint if no request can ever be answered."""
        target = self._moved.get(url, url)
        response = await self._post(target, content, headers, seconds)
        for _ in range(_MOST_REDIRECTS):
            moved = _same_server(target, response.headers.get("Location", "")) if response.status in _KEEPS_METHOD else None
            if moved is None:
                break
            if response.status == _PERMANENT and url not in self._moved:
                self._moved[url] = moved
                logger.warning("%s has moved to %s on the same server. Update base_url.", url, moved)
            target = moved
            response = await self._post(target, content, headers, seconds)
        return response

    async def _post(self, url: str, content: bytes, headers: dict[str, str], seconds: float) -> Response:
        session = self._open(url)
        import aiohttp

        if url not in self._proxies:
            self._proxies[url] = proxy_for(url)
        proxy = self._proxies[url]
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, _CONNECT_SECONDS))
        try:
            async with session.post(
                url, data=content, headers=headers, timeout=timeout, allow_redirects=False, proxy=proxy and proxy.url
            ) as response:
                answer = Response(response.status, response.headers, await response.read())
        except TimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise fault_of_connection(error, proxy) from None
            raise RetryableFault(f"no reply within {seconds:g} s", unseen=1, timed_out=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise fault_of_connection(error, proxy) from None
        if proxy is not None and answer.status == 407:
            raise fault_of_proxy(answer.status, proxy)
        return answer

    def _open(self, url: str) -> Any:
        if self._session is None:
            import aiohttp

            # Each server already limits open requests; a second limit in the pool would queue them unseen.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=_own_certificates(url) or True)
            self._session = aiohttp.ClientSession(connector=connector, json_serialize=json.dumps, **LONG_HEADERS)
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


def _own_certificates(url: str) -> Any:
    """A context that also trusts the certificates that the environment names, or None without them. Raises UnusableEndpoint."""
    name = next((name for name in _BUNDLES if os.environ.get(name) not in (None, "", os.environ.get("SSL_CERT_FILE"))), None)
    if name is None or not url.startswith("https://"):
        return None
    import ssl

    context, place = ssl.create_default_context(), os.environ[name]
    try:
        context.load_verify_locations(**({"capath": place} if os.path.isdir(place) else {"cafile": place}))
    except OSError as error:
        raise certificate_fault(name, place, error) from None
    return context


def _same_server(url: str, location: str) -> str | None:
    """The address to which a response redirects if it is on the same server, if need be by HTTPS instead of HTTP; else None."""
    try:
        before, after = urlsplit(url), urlsplit(urljoin(url, location))
        places = [(one.hostname, one.port or _PORTS.get(one.scheme)) for one in (before, after)]
    except ValueError:
        return None
    same = before.scheme == after.scheme and places[0] == places[1]
    secured = (before.scheme, after.scheme) == ("http", "https") and places == [(before.hostname, 80), (before.hostname, 443)]
    return after.geturl() if location and (same or secured) and "@" not in after.netloc else None
