"""The demo's teacher, served, and a search over its worlds."""

from collections.abc import Iterator

import pytest
from helpers.demo_teacher import PASSAGES, WORLDS

from refinery.demo.teacher.replies import serve
from refinery.demo.teacher.server import ChatServer
from refinery.retrievers.bm25 import Bm25


@pytest.fixture(scope="session")
def server() -> Iterator[ChatServer]:
    with serve(WORLDS) as server:
        yield server


@pytest.fixture(scope="session")
def bm25() -> Bm25:
    return Bm25(list(PASSAGES.values()))
