"""How requests get to a server: by proxies, redirects and certificates, and what is said when they do not."""

import asyncio
import shutil
import socket
import ssl
import subprocess

import pytest
from helpers.scripted_server import ScriptedServer, chat_reply, scripted

from refinery.llms.served.endpoint import EndpointConfig, Reply, UnusableEndpoint
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.llms.served.transport.client import EndpointClient
from refinery.llms.served.transport.http import _same_server
from refinery.llms.served.transport.proxies import proxy_for

PROXY_VARIABLES = [name for scheme in ("http", "https", "all", "no") for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY")]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in (*PROXY_VARIABLES, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")


def ask(base_url, **values) -> str:
    """The reply's text, or the error in one line."""

    async def run() -> str:
        chat = EndpointClient(EndpointConfig(model="m", base_url=base_url, max_tries=1, **values))
        try:
            async with asyncio.timeout(30):
                return (await chat.reply(ChatRequest(b"", (("user", "Who?"),)))).text
        except UnusableEndpoint as error:
            return str(error)
        finally:
            await chat.close()

    said = asyncio.run(run())
    assert len(said.splitlines()) == 1
    return said


class Routed(ScriptedServer):
    """Also gives its script the path."""

    def respond(self, path, headers, body):
        return self.answer(path)


# Proxies


def test_a_proxy_of_the_environment_is_used_also_with_a_password(monkeypatch):
    with scripted(lambda path: (200, chat_reply(path)), server_type=Routed) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address.replace("//", "//user:word@"))
        assert ask("http://teacher.test/v1") == "http://teacher.test/v1/chat/completions"
        assert proxy.headers[0]["Proxy-Authorization"] == "Basic dXNlcjp3b3Jk"


@pytest.mark.parametrize(
    ("status", "said"),
    [(407, "wants a user and a password: write them into HTTP_PROXY"), (None, "(HTTP_PROXY) does not answer. Correct HTTP_PROXY, or add")],
)
def test_a_proxy_that_refuses_is_told_without_its_password(monkeypatch, status, said):
    with scripted(lambda body: (status, {})) as proxy:
        place = f"127.0.0.1:{proxy.server_port if status else 9}"
        monkeypatch.setenv("HTTP_PROXY", f"http://user:hunter@{place}")
        error = ask("http://teacher.test/v1")
    assert f"the proxy {place} " in error
    assert said in error
    assert "hunter" not in error


def test_a_proxy_that_does_not_connect_to_a_host_by_https_is_told(monkeypatch):
    with scripted(lambda body: (500, {})) as proxy:  # it knows no CONNECT, and answers 501
        monkeypatch.setenv("HTTPS_PROXY", proxy.address)
        assert "cannot reach the server (status 501)" in ask("https://teacher.test/v1")


@pytest.mark.parametrize(
    ("environment", "url", "place"),
    [
        ({"HTTPS_PROXY": "http://proxy.test:3128"}, "https://teacher.test/v1", "proxy.test:3128"),
        ({"https_proxy": "proxy.test:3128"}, "https://teacher.test/v1", "proxy.test:3128"),
        ({"ALL_PROXY": "http://proxy.test"}, "https://teacher.test/v1", "proxy.test"),
        ({"HTTP_PROXY": "http://proxy.test"}, "https://teacher.test/v1", None),
        ({"HTTPS_PROXY": "http://proxy.test", "NO_PROXY": "other.test,.teacher.test"}, "https://a.teacher.test/v1", None),
        ({"ALL_PROXY": "http://proxy.test"}, "http://127.0.0.1:8000/v1", None),
        ({"ALL_PROXY": "http://proxy.test"}, "http://[::1]:8000/v1", None),
        ({"ALL_PROXY": "http://proxy.test"}, "http://localhost:8000/v1", None),
        ({}, "https://teacher.test/v1", None),
    ],
)
def test_the_proxy_is_the_one_that_curl_would_use_and_none_for_this_machine(monkeypatch, environment, url, place):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_for(url)
    assert (proxy and proxy.place) == place


def test_a_proxy_that_is_not_http_is_refused(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://user:word@proxy.test:1080")
    assert "ALL_PROXY names no HTTP proxy. Write it as http://host:port, or add teacher.test to NO_PROXY." in ask("http://teacher.test/v1")


# Redirects


@pytest.mark.parametrize(("status", "asked_twice"), [(307, 2), (308, 1)])
def test_a_redirect_within_a_server_is_followed_and_a_permanent_one_remembered(status, asked_twice):
    def answer(path):
        paths.append(path)
        return (200, chat_reply("Lyon")) if path.startswith("/new") else (status, {}, {"Location": "/new/v1/chat/completions"})

    async def run(base_url) -> list[Reply]:
        chat = EndpointClient(EndpointConfig(model="m", base_url=base_url))
        replies = [await chat.reply(ChatRequest(b"", (("user", "Who?"),))) for _ in range(2)]
        await chat.close()
        return replies

    paths = []
    with scripted(answer, server_type=Routed) as server:
        assert [reply.text for reply in asyncio.run(run(server.base_url))] == ["Lyon", "Lyon"]
    assert len([path for path in paths if path.startswith("/v1")]) == asked_twice


def test_redirects_without_end_stop_in_one_line():
    with scripted(lambda body: (308, {}, {"Location": "/v1/chat/completions"})) as server:
        assert "status 308: it redirects to" in ask(server.base_url)
        assert len(server.bodies) < 10


@pytest.mark.parametrize(
    ("url", "location", "followed"),
    [
        ("https://a.test/v1/x", "/v2/x", "https://a.test/v2/x"),
        ("https://a.test/v1/x", "https://a.test:443/v1/x/", "https://a.test:443/v1/x/"),
        ("http://a.test/v1", "https://a.test/v1", "https://a.test/v1"),
        ("https://a.test/v1", "http://a.test/v1", None),
        ("http://a.test:8000/v1", "https://a.test/v1", None),
        ("https://a.test/v1", "https://b.test/v1", None),
        ("https://a.test/v1", "//b.test/v1", None),
        ("https://a.test/v1", "https://a.test:444/v1", None),
        ("https://a.test/v1", "https://a.test@b.test/v1", None),
        ("https://a.test/v1", "https://user:word@a.test/v1", None),
        ("https://a.test/v1", "https://a.test:port/v1", None),
        ("https://a.test/v1", "file:///etc/passwd", None),
        ("https://a.test/v1", "", None),
    ],
)
def test_the_key_goes_to_no_other_server(url, location, followed):
    assert _same_server(url, location) == followed


# Connections


def test_nobody_there_no_such_host_and_no_reply_are_told_apart(monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        said = [
            ask("http://127.0.0.1:9/v1"),
            ask("http://no-such-host.invalid/v1"),
            ask(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", timeout_seconds=0.5),
            ask("http://:8000/v1"),
        ]
    assert "Connection refused. Is a server running there? Start it, or correct base_url." in said[0]
    assert "The host 'no-such-host.invalid' is unknown (DNS). Correct base_url, or check this machine's network." in said[1]
    assert "no reply within 0.5 s; raise timeout_seconds" in said[2]
    assert "its address is not a URL. Correct base_url." in said[3]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for `localhost`, and its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("certificate")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run([*made, *names], check=True, capture_output=True)
    return folder


@pytest.fixture
def tls(certificate):
    """A server with this certificate; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
    with scripted(lambda body: (200, chat_reply("Lyon"))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *broken: None
        yield server.server_port


def test_a_certificate_that_is_not_trusted_is_one_line_with_the_remedy(tls):
    error = ask(f"https://localhost:{tls}/v1", deadline_seconds=5)
    assert "its certificate is not trusted (self-signed certificate). Export SSL_CERT_FILE=FILE with the server's certificate" in error


def test_a_certificate_of_the_environment_is_trusted(tls, certificate, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate / "certificate.pem"))
    assert ask(f"https://localhost:{tls}/v1") == "Lyon"
    assert "its certificate is for another host" in ask(f"https://127.0.0.1:{tls}/v1")


@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), ("no certificate", "it holds no certificate")])
def test_certificates_that_cannot_be_read_are_told(tls, tmp_path, monkeypatch, content, why):
    if content:
        (tmp_path / "mine.pem").write_text(content)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "mine.pem"))
    assert f"$REQUESTS_CA_BUNDLE names '{tmp_path}/mine.pem', which cannot be read ({why})" in ask(f"https://localhost:{tls}/v1")


def test_a_certificate_file_that_is_not_there_is_told(tls, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such.pem")
    assert "$SSL_CERT_FILE names '/no/such.pem', which is not a file" in ask(f"https://localhost:{tls}/v1")


def test_https_to_a_server_of_plain_http_is_told():
    with scripted(lambda body: (200, chat_reply("Lyon"))) as server:
        error = ask(server.base_url.replace("http:", "https:"))
    assert "The TLS handshake failed (" in error
    assert "If the server speaks plain HTTP, write http:// in base_url." in error
