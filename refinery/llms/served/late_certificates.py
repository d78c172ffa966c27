"""TLS contexts that load the system's certificates when the first connection over TLS is made.

aiohttp makes two contexts while it is imported, in every program, and loading the certificates for them takes as long as the rest of its
import. A server of this machine or of a local network is asked over plain HTTP and needs none. Other code that connects by aiohttp gets
the same contexts and notices nothing.
"""

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def late_certificates() -> Generator[None]:
    """Within this block, a new `ssl.SSLContext` is one that loads certificates late; it is complete in any other respect."""
    made = ssl.SSLContext.__new__

    def make(kind: type[ssl.SSLContext], *given: Any, **named: Any) -> ssl.SSLContext:
        return made(_LateContext if kind is ssl.SSLContext else kind, *given, **named)

    ssl.SSLContext.__new__ = make  # pyright: ignore[reportAttributeAccessIssue]  # stands in for two overloads
    try:
        yield
    finally:
        ssl.SSLContext.__new__ = made


class _LateContext(ssl.SSLContext):
    """A context that remembers to load them."""

    _is_late = False

    def set_default_verify_paths(self) -> None:  # which `load_default_certs` calls too
        self._is_late = True

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        self._load()
        return super().wrap_socket(*given, **named)

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        self._load()
        return super().wrap_bio(*given, **named)

    def _load(self) -> None:
        if self._is_late:
            self._is_late = False
            super().set_default_verify_paths()
