import ssl
import subprocess
import sys

from refinery.llms.served.late_certificates import late_certificates


def late_context():
    with late_certificates():
        return ssl.create_default_context()


def num_certificates(context):
    return context.cert_store_stats()["x509"]


def connect(context):
    return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")


def test_a_context_loads_the_systems_certificates_for_its_first_connection():
    usual, context = ssl.create_default_context(), late_context()
    assert num_certificates(context) == 0
    connect(context)
    assert num_certificates(context) == num_certificates(usual)


def test_it_checks_what_other_contexts_check():
    usual, context = ssl.create_default_context(), late_context()
    assert (context.verify_mode, context.check_hostname, context.options) == (usual.verify_mode, usual.check_hostname, usual.options)


def test_contexts_that_are_made_later_are_the_usual_ones():
    assert isinstance(late_context(), ssl.SSLContext)
    assert type(ssl.create_default_context()) is ssl.SSLContext


def test_a_session_without_tls_loads_no_certificates():
    script = (
        "import asyncio, ssl; from refinery.llms.served.http import HttpSession\n"
        "ssl.SSLContext.set_default_verify_paths = lambda *given: print('loaded')\n"
        "async def open(): session = HttpSession(); session._open('http://localhost'); await session.close()\n"
        "asyncio.run(open())"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == ""
