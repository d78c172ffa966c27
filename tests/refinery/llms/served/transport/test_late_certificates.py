import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import sleep

from refinery.llms.served.transport.late_certificates import late_certificates


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
    before = ssl.SSLContext.__dict__["__new__"]
    assert isinstance(late_context(), ssl.SSLContext)
    assert ssl.SSLContext.__dict__["__new__"] is before
    assert type(ssl.create_default_context()) is ssl.SSLContext


def test_contexts_that_other_threads_make_meanwhile_are_the_usual_ones():
    with late_certificates(), ThreadPoolExecutor() as threads:
        context = threads.submit(ssl.create_default_context).result()
    assert type(context) is ssl.SSLContext
    assert num_certificates(context) == num_certificates(ssl.create_default_context())


def test_a_kind_of_context_that_a_library_has_of_its_own_is_left_alone():
    class OwnContext(ssl.SSLContext):
        """As urllib3 and others have."""

    with late_certificates():
        assert type(OwnContext(ssl.PROTOCOL_TLS_CLIENT)) is OwnContext


def test_two_threads_at_once_leave_nothing_behind():
    """The second waits for the first, instead of taking its change for what was there before."""
    before, both = ssl.SSLContext.__dict__["__new__"], Barrier(2)

    def make():
        both.wait()
        with late_certificates():
            sleep(0.01)
            return ssl.create_default_context()

    with ThreadPoolExecutor() as threads:
        contexts = [made.result() for made in [threads.submit(make) for _ in range(2)]]
    assert [num_certificates(context) for context in contexts] == [0, 0]
    assert ssl.SSLContext.__dict__["__new__"] is before


def test_a_session_without_tls_loads_no_certificates():
    script = (
        "import asyncio, ssl; from refinery.llms.served.transport.http import HttpSession\n"
        "ssl.SSLContext.set_default_verify_paths = lambda *given: print('loaded')\n"
        "async def open(): session = HttpSession(); session._open('http://localhost'); await session.close()\n"
        "asyncio.run(open())"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == ""
