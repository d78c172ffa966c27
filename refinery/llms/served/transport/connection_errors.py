"""Why a connection failed, in one line with the remedy: an unknown host, nobody there, no way there, TLS, a certificate, a proxy."""

import errno
import os
import ssl

from refinery.llms.served.endpoint import UnusableEndpoint
from refinery.llms.served.transport.proxies import Proxy
from refinery.llms.served.wire.lenient_json import one_line
from refinery.llms.served.wire.responses import RetryableFault

_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
# OpenSSL's codes of verification (X509_V_ERR_*).
_EXPIRED, _HOST_MISMATCH = (9, 10), (62, 64)


def fault_of_connection(error: Exception, proxy: Proxy | None) -> RetryableFault | UnusableEndpoint:
    """The exception for an error of aiohttp. A certificate that is not trusted ends the use of a server; all else is tried again."""
    import aiohttp

    if proxy is not None and _is_of_proxy(error, proxy):
        return fault_of_proxy(getattr(error, "status", None), proxy)
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return UnusableEndpoint(_untrusted(error.certificate_error))
        case aiohttp.InvalidURL():
            return UnusableEndpoint("its address is not a URL. Correct base_url.")
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return RetryableFault(_not_connected(error))
        case _:  # a request whose connection broke after it was sent may have been answered and charged
            return RetryableFault("The connection broke before the reply was complete.", unseen=1)


def _is_of_proxy(error: Exception, proxy: Proxy) -> bool:
    import aiohttp

    of_its_host = isinstance(error, aiohttp.ClientConnectorDNSError) and error.host == proxy.place.partition(":")[0]
    return of_its_host or isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError)


def fault_of_proxy(status: int | None, proxy: Proxy) -> RetryableFault | UnusableEndpoint:
    """The exception for a proxy that does not answer (`status` None) or that refuses to connect."""
    name, remedy = f"the proxy {proxy.place} ({proxy.variable})", "or add the server's host to NO_PROXY."
    if status == 407:
        return UnusableEndpoint(f"{name} wants a user and a password: write them into {proxy.variable} as http://user:password@host:port.")
    if status is None or status >= 500:
        what = "does not answer" if status is None else f"cannot reach the server (status {status})"
        return RetryableFault(f"{name} {what}. Correct {proxy.variable}, {remedy}")
    return UnusableEndpoint(f"{name} refuses to connect to the server (status {status}). Ask who runs it, {remedy}")


def _not_connected(error: Exception) -> str:
    """What to say about a connection that was not made."""
    import aiohttp

    cause = getattr(error, "os_error", None)
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"The host '{one_line(error.host)}' is unknown (DNS). Correct base_url, or check this machine's network."
        case aiohttp.ClientSSLError():
            reason = getattr(cause, "reason", None) or cause or error
            return f"The TLS handshake failed ({one_line(str(reason))}). If the server speaks plain HTTP, write http:// in base_url."
        case aiohttp.ConnectionTimeoutError():
            return "No connection in time. Check the address; a firewall may block it, or HTTPS_PROXY may have to name a proxy."
    if isinstance(cause, ConnectionRefusedError):
        return "Connection refused. Is a server running there? Start it, or correct base_url."
    if isinstance(cause, OSError) and cause.errno in _NO_WAY:
        return f"The network gives no way to it ({one_line(str(cause.strerror))}). Check the network, or name a proxy in HTTPS_PROXY."
    return f"No connection ({one_line(str(cause or error))}). Check the server and base_url."


def _untrusted(error: Exception) -> str:
    """What to say about a certificate that is not trusted."""
    code = getattr(error, "verify_code", 0)
    why = one_line(str(getattr(error, "verify_message", "") or error)).rstrip(".")
    if code in _HOST_MISMATCH:
        return f"its certificate is for another host ({why}). Write the host of the certificate in base_url."
    if code in _EXPIRED:
        return f"its certificate is not valid now ({why}). Renew it, or correct this machine's clock."
    if (file := os.environ.get("SSL_CERT_FILE")) and not os.path.isfile(file):
        return f"its certificate cannot be checked: $SSL_CERT_FILE names '{one_line(file)}', which is not a file. Correct or unset it."
    return f"its certificate is not trusted ({why}). Export SSL_CERT_FILE=FILE with the server's certificate, or its authority's, as PEM."


def certificate_fault(variable: str, place: str, error: OSError) -> UnusableEndpoint:
    """The exception for certificates of the user's own that cannot be read."""
    why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
    return UnusableEndpoint(f"${variable} names '{one_line(place)}', which cannot be read ({why}). Correct or unset it.")
