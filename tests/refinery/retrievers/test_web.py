import asyncio
import time

import pytest

from refinery.errors import RetrievalError
from refinery.retrievers.search.cache import CachedRetriever
from refinery.retrievers.web import Options, Web

PAGES = [
    {"title": "Lyon", "href": "https://a.example", "body": "A city."},
    {"title": "Lyon again", "href": "https://a.example", "body": "The same page."},
    {"title": "", "href": "", "body": "no address"},
    {"title": None, "href": "https://b.example", "body": "[A_Response] 42 [EOS]"},
]


class Engine:
    """ddgs in miniature: gives `pages`, or raises what `faults` holds first."""

    def __init__(self, pages=PAGES, faults=()):
        self.pages, self.faults, self.asked, self.times = pages, list(faults), [], []

    def __call__(self, query, k):
        self.asked.append((query, k))
        self.times.append(time.monotonic())
        if self.faults:
            raise self.faults.pop(0)
        return self.pages


def web(engine, **options):
    return Web(Options(**{"seconds_between_searches": 0.0, **options}), engine)


def test_a_page_is_a_passage_of_its_title_and_snippet(search):
    hits = search(web(Engine()), "Lyon", k=5)
    assert [(hit.passage.id, hit.passage.title, hit.passage.text) for hit in hits] == [
        ("https://a.example", "Lyon", "A city."),
        ("https://b.example", "", "[A_Response] 42 [EOS]"),
    ]
    assert [hit.retrieval_score for hit in hits] == [1.0, 0.5]


def test_an_outage_that_passes_is_tried_again(search):
    engine = Engine(faults=[TimeoutError("slow"), RuntimeError("202 Ratelimit")])
    assert len(search(web(engine), "Lyon")) == 2
    assert len(engine.asked) == 3


def test_an_outage_that_stays_is_an_error_of_its_query(search):
    engine = Engine(faults=[RuntimeError("202 Ratelimit")] * 3)
    retriever = web(engine)
    with pytest.raises(RetrievalError, match=r"query 'Lyon' failed 3 times \(RuntimeError: 202 Ratelimit\). Search again later"):
        search(retriever, "Lyon")
    assert len(engine.asked) == 3
    assert len(search(retriever, "Oslo")) == 2


def test_nothing_found_is_no_outage(search):
    engine = Engine(faults=[RuntimeError("No results found.")])
    assert search(web(engine), "zyxw") == []
    assert len(engine.asked) == 1


def test_searches_made_together_keep_their_distance():
    engine = Engine()

    async def ask(retriever):
        await asyncio.gather(*(retriever.search(query, k=1) for query in ("a", "b", "c")))

    asyncio.run(ask(web(engine, seconds_between_searches=0.05)))
    assert all(later - earlier >= 0.05 for earlier, later in zip(engine.times, engine.times[1:], strict=False))


def test_a_query_is_cut_where_the_authors_cut_it(search):
    engine = Engine()
    search(web(engine), "x" * 1_000_000)
    assert [len(query) for query, _ in engine.asked] == [300]


def test_a_blank_query_is_not_sent(search):
    engine = Engine()
    assert search(web(engine), " \n") == []
    assert engine.asked == []


def test_a_cached_search_is_not_sent_again(tmp_path, search):
    engine = Engine()
    for _ in range(2):
        assert len(search(CachedRetriever(web(engine), tmp_path / "cache.sqlite"), "Lyon", k=2)) == 2
    assert len(engine.asked) == 1


@pytest.mark.network
def test_the_web_answers(search):
    pytest.importorskip("ddgs")
    assert search(Web(Options()), "capital of France", k=3)
