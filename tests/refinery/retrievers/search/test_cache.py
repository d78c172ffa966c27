import asyncio

import pytest

from refinery.contract.records import Passage, Question
from refinery.errors import RecipeError, RetrievalError
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig
from refinery.retrievers.search.build import build_retriever
from refinery.retrievers.search.cache import CachedRetriever, search_key


class Slow(Retriever):
    """A retriever that waits until it is let go, and counts what it is asked."""

    def __init__(self, revision="corpus", fail=0):
        self.revision, self.asked, self._fail = revision, [], fail
        self.let_go = asyncio.Event()

    async def search(self, query, *, k, question=None):
        self.asked.append(query)
        await self.let_go.wait()
        if self._fail:
            self._fail -= 1
            raise RetrievalError("down")
        return [Hit(Passage(id=f"{query}:{n}", title="é", text="Text."), 1 / (n + 1)) for n in range(k)]


class Quick(Slow):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.let_go.set()


def ask(retriever, *searches):
    async def gather():
        asked = [asyncio.ensure_future(retriever.search(query, k=k)) for query, k in searches]
        await asyncio.sleep(0)
        retriever.retriever.let_go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(gather())


def test_equal_searches_under_way_are_one():
    slow = Slow()
    found = ask(CachedRetriever(slow), ("Lyon", 2), ("Lyon", 2), ("Oslo", 2), ("Lyon", 3))
    assert slow.asked == ["Lyon", "Oslo", "Lyon"]
    assert found[0] == found[1]
    assert [len(hits) for hits in found] == [2, 2, 2, 3]


def test_a_search_that_is_done_is_remembered(search):
    retriever = CachedRetriever(Quick())
    assert search(retriever, "Lyon") == search(retriever, "Lyon")
    assert retriever.retriever.asked == ["Lyon"]


def test_an_outage_is_an_error_of_all_that_wait_and_the_next_search_is_made_anew(search):
    slow = Slow(fail=1)
    retriever = CachedRetriever(slow)
    assert [str(error) for error in ask(retriever, ("Lyon", 1), ("Lyon", 1))] == ["down", "down"]
    assert search(retriever, "Lyon", k=1)[0].passage.id == "Lyon:0"
    assert slow.asked == ["Lyon", "Lyon"]


def test_one_that_gives_up_leaves_the_search_to_another():
    slow = Slow()
    retriever = CachedRetriever(slow)

    async def run():
        first, second = (asyncio.ensure_future(retriever.search("Lyon", k=1)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        slow.let_go.set()
        return await second

    assert asyncio.run(run())[0].passage.id == "Lyon:0"


def test_a_file_keeps_searches_between_runs(tmp_path, search):
    first, second = (CachedRetriever(Quick(), tmp_path / "deep" / "cache.sqlite") for _ in range(2))
    assert search(second, "Lyon", k=2) == search(first, "Lyon", k=2)
    assert (first.retriever.asked, second.retriever.asked) == ([], ["Lyon"])


def test_another_revision_query_or_number_is_another_search(tmp_path, search):
    keys = {search_key(*of) for of in (("a", "q", 1), ("b", "q", 1), ("a", "r", 1), ("a", "q", 2), ("a", "q", 1))}
    assert len(keys) == 4


def test_what_depends_on_the_question_is_searched_for_each(search):
    retriever = CachedRetriever(Quick(revision=None))
    for id in ("a", "b", "a"):
        search(retriever, "Lyon", question=Question(id=id, text="Which?"))
    assert retriever.retriever.asked == ["Lyon", "Lyon"]


def test_a_cache_for_what_depends_on_the_question_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="has no revision, or its hits depend on the question"):
        build_retriever(RetrieverConfig(name="candidates", cache=tmp_path / "cache.sqlite"))


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    (tmp_path / "cache.sqlite").write_text("not a database, though long enough to look like one to sqlite " * 20)
    with pytest.raises(RetrievalError, match=r"cache\.sqlite: cannot store searches"):
        CachedRetriever(Quick(), tmp_path / "cache.sqlite")


@pytest.mark.parametrize(
    "query", ["Lyon" + "x" * 1_000_000, "Lyon \ud800", "[A_Response] 42 [EOS]", "</s>\x00", "'; DROP TABLE searches; --"]
)
def test_a_hostile_query_is_a_query(tmp_path, search, query):
    retriever = CachedRetriever(Quick(), tmp_path / "cache.sqlite")
    assert search(retriever, query) == search(CachedRetriever(Quick(), tmp_path / "cache.sqlite"), query)
    assert len(retriever.retriever.asked[0]) <= 8_192


def test_a_search_that_needs_no_waiting_gives_no_turn_away():
    """Decoders that search in one turn of the event loop stay together for the engine's next micro-batch."""
    retriever = CachedRetriever(Quick())
    coroutine = retriever.search("Lyon", k=1)

    async def run():
        with pytest.raises(StopIteration):
            coroutine.send(None)

    asyncio.run(run())


def test_memory_of_searches_is_bounded(search, monkeypatch):
    monkeypatch.setattr("refinery.retrievers.search.cache._MOST_REMEMBERED", 2)
    retriever = CachedRetriever(Quick())
    for query in ("a", "b", "c", "b", "a"):
        search(retriever, query)
    assert retriever.retriever.asked == ["a", "b", "c", "a"]
