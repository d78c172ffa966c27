"""TLS contexts that load the system's certificates when the first connection over TLS is made.

aiohttp makes two contexts while it is imported, in every program, and loading the certificates for them takes about 50 ms of the 240 ms
that the import takes. A server of this machine or of a local network is asked over plain HTTP and needs none. Other code that connects by
aiohttp gets the same contexts and notices nothing.

Nothing but the import can be changed: a context of our own for the connector comes after aiohttp has made its two, and it has no setting.
So this thread's new contexts are late ones while the import lasts; `ssl.SSLContext` itself must stay, because aiohttp tests for its type.
"""

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Any

_one_at_a_time = Lock()  # of two that overlap, the second would restore what the first had put there


@contextmanager
def late_certificates() -> Generator[None]:
    """In this block and thread, a new `ssl.SSLContext` is one that loads certificates late; it is complete in any other respect."""
    with _one_at_a_time:
        before, thread = ssl.SSLContext.__dict__["__new__"], get_ident()

        def make(kind: type[ssl.SSLContext], *given: Any, **named: Any) -> ssl.SSLContext:
            is_late = kind is ssl.SSLContext and get_ident() == thread
            return before.__func__(_LateContext if is_late else kind, *given, **named)

        ssl.SSLContext.__new__ = make  # pyright: ignore[reportAttributeAccessIssue]  # stands in for two overloads
        try:
            yield
        finally:
            ssl.SSLContext.__new__ = before


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
            super().set_default_verify_paths()
            self._is_late = False  # last, because another thread may connect meanwhile: then both load them
