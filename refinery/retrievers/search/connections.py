"""Connections to one HTTP server that stay open between requests, one for each thread."""

import http.client
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

# What a kept connection raises on which the server has hung up meanwhile.
_HUNG_UP = (ConnectionError, http.client.HTTPException)


class Connections:
    """Follows no redirect, so that keys and texts go to no other address."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._place, self._timeout_seconds = urlsplit(url), timeout_seconds
        self._threads = threading.local()

    def request(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """The status and the content of the reply. Raises OSError or HTTPException without one."""
        kept, self._threads.kept = getattr(self._threads, "kept", None), None
        if kept is not None:
            try:
                return self._exchange(kept, method, path, body, headers or {})
            except _HUNG_UP:
                kept.close()
        return self._exchange(self._opened(), method, path, body, headers or {})

    def _opened(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPSConnection if self._place.scheme == "https" else http.client.HTTPConnection
        return connection(self._place.hostname or "", self._place.port, timeout=self._timeout_seconds)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection.request(method, path, body, dict(headers))
        reply = connection.getresponse()
        content = reply.read()
        self._threads.kept = connection
        return reply.status, content
