import asyncio
import contextlib

import pytest

from distill.label_context import LabelContext
from distill.recipe import DistillRecipe
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Passage, Question
from refinery.errors import RetrievalError
from refinery.retrievers.base import Hit, Retriever
from refinery.stores.sqlite import SqliteStore

QUESTION = Question(id="q", text="Where is Lyon?")


class Counting(Retriever):
    """A retriever that counts its searches."""

    def __init__(self, revision=None):
        self.searches = 0
        if revision:
            self.revision = revision

    async def search(self, query, *, k, question=None):
        self.searches += 1
        return [Hit(Passage(id=f"{query}:{rank}", title="T", text="Text."), 1.0) for rank in range(k)]


def search(folder, retriever, *queries, k=None):
    recipe = DistillRecipe(task="relevance", output_dir=folder, passages_per_query=2)

    async def run():
        with contextlib.closing(SqliteStore(folder / "effects.sqlite")) as store:
            context = LabelContext(recipe, None, None, retriever, store)
            return [await context.search(query, QUESTION, k=k) for query in queries]

    return asyncio.run(run())


def test_a_search_is_kept_like_a_paid_reply(tmp_path):
    first, second = Counting("corpus 1"), Counting("corpus 1")
    found = search(tmp_path, first, "Lyon", "Lyon", "Paris")
    assert search(tmp_path, second, "Lyon", "Lyon", "Paris") == found
    assert (first.searches, second.searches) == (2, 0)


def test_a_search_that_cannot_be_made_rejects_its_row(tmp_path):
    class Down(Counting):
        async def search(self, query, *, k, question=None):
            raise RetrievalError("the web is down")

    with pytest.raises(RejectedRow, match="the web is down") as rejected:
        search(tmp_path, Down("corpus 1"), "Lyon")
    assert rejected.value.reason == "search_failed"
    assert len(search(tmp_path, Counting("corpus 1"), "Lyon")[0]) == 2


def test_another_corpus_or_another_k_is_another_search(tmp_path):
    search(tmp_path, Counting("corpus 1"), "Lyon")
    other_corpus, other_k = Counting("corpus 2"), Counting("corpus 1")
    search(tmp_path, other_corpus, "Lyon")
    assert len(search(tmp_path, other_k, "Lyon", k=3)[0]) == 3
    assert (other_corpus.searches, other_k.searches) == (1, 1)


def test_what_a_question_brings_with_it_is_searched_anew(tmp_path):
    retriever = Counting()
    search(tmp_path, retriever, "Lyon", "Lyon")
    assert retriever.searches == 2
