import asyncio

import pytest

from infer.steps.knowledge_filter import KnowledgeFilter
from infer.steps.scorers import LexicalScorer
from refinery.contract.records import Passage

TEA, BORN, CAT = "She likes tea.", "She was born in Lyon.", "She owns a cat."
PERSON = Passage(id="person", title="Maria Torvel", text=f"{TEA} {BORN} {CAT}")
OTHER = Passage(id="other", title="Oslo", text="Oslo is a city.")


class Table:
    """A reranker that looks scores up, passages by their title and sentences by their beginning."""

    def __init__(self, **scores: float):
        self.scores, self.statements = scores, []

    async def score(self, statement, passages):
        self.statements.append(statement)
        texts = [passage.title or passage.text for passage in passages]
        return [next((score for start, score in self.scores.items() if text.startswith(start)), 0.0) for text in texts]


def keep(scores: dict[str, float], *, threshold: float = 1.0, sentence_level: bool = True, passages=(PERSON, OTHER)):
    table = Table(**scores)
    hits = asyncio.run(KnowledgeFilter(table, threshold, sentence_level).keep("Where?", passages))
    return [(hit.passage.id, hit.passage.text, hit.retrieval_score) for hit in hits], table


def test_a_passage_below_the_threshold_is_dropped():
    assert keep({"Maria": 1.0, "Oslo": 0.9}, sentence_level=False)[0] == [("person", PERSON.text, 1.0)]


@pytest.mark.parametrize(
    ("sentences", "text"),
    [
        ({TEA: 0.5, BORN: 3.0, CAT: 0.0}, BORN),
        ({TEA: 1.5, BORN: 3.0, CAT: 0.0}, f"{TEA} {BORN}"),
        ({TEA: 1.5, BORN: 1.9, CAT: 1.9}, PERSON.text),
        ({TEA: 0.5, BORN: 2.0, CAT: 0.0}, BORN),
    ],
    ids=["the noise goes", "what is relevant stays", "a passage above each of its sentences stays whole", "a tie is no more relevant"],
)
def test_sentences_are_filtered_unless_the_passage_is_more_relevant_than_each(sentences, text):
    assert keep({"Maria": 2.0} | sentences)[0] == [("person", text, 2.0)]


def test_passages_and_sentences_are_scored_in_one_call():
    assert keep({"Maria": 2.0})[1].statements == ["Where?"]


def test_nothing_found_is_nothing_to_score():
    kept, table = keep({}, passages=())
    assert (kept, table.statements) == ([], [])


def test_without_a_reranker_everything_stays_in_order():
    hits = asyncio.run(KnowledgeFilter(None, 99.0, sentence_level=True).keep("Where?", [OTHER, PERSON]))
    assert [(hit.passage, hit.retrieval_score) for hit in hits] == [(OTHER, 1.0), (PERSON, 0.5)]


def test_the_lexical_reranker_prefers_texts_with_the_querys_rare_words():
    texts = ["Oslo is a city.", "Maria Torvel was born in Lyon.", "Maria has a cat.", "..."]
    scores = asyncio.run(LexicalScorer().score("Where was Maria Torvel born?", [Passage(id="", text=text) for text in texts]))
    assert scores[1] > scores[2] > scores[0] == scores[3] == 0.0
