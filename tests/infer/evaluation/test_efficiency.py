"""MIGRES' efficiency figures, from traces."""

import asyncio
import re
from collections import defaultdict

import pytest

from infer.decoders import migres
from infer.evaluation.efficiency import Efficiency
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Cost, Prediction, ScoredPassage, TraceStep
from refinery.llms.fake import FakeLLM, FakeTokenizer
from refinery.retrievers.fake import FakeRetriever

# Two words and six, by white space.
FILM = ScoredPassage(id="film", title="Dune (film)", text="It is by Maria Torvel, 1984.", retrieval_score=1.0)
PERSON = ScoredPassage(id="person", text="Born in Lyon", retrieval_score=0.5)
SHORTER = FILM.model_copy(update={"title": "Dune", "text": "Maria Torvel"})


def prediction(*steps: tuple[str, int, list[ScoredPassage]]) -> Prediction:
    """A prediction whose trace has steps of a name, a depth and passages."""
    trace = [TraceStep(name=name, depth=depth, question="q", passages=found or None) for name, depth, found in steps]
    return Prediction(
        question_id="q", question="q", answer="a", trace=trace, cost=Cost(calls=1, retrievals=1, prefill_tokens=1, decode_tokens=1)
    )


def efficiency(predictions: list[Prediction], **tokenizer) -> dict[str, float]:
    measured = Efficiency(**tokenizer)
    for one in predictions:
        measured.add(one)
    return measured.means()


def iterations_and_passages(*predictions: Prediction) -> tuple[float, float]:
    found = efficiency(predictions)
    return found["iterations"], found["passages_per_iteration"]


def words(*predictions: Prediction) -> float:
    return efficiency(predictions)["knowledge_tokens"]


def test_one_search_is_one_iteration_of_all_its_passages():
    assert iterations_and_passages(prediction(("retrieve", 0, [FILM] * 5), ("answer", 0, []))) == (1, 5)


def test_passages_are_counted_after_the_filter():
    found = prediction(("retrieve", 0, [FILM] * 50), ("filter", 0, [FILM] * 2), ("retrieve", 1, [FILM] * 50), ("filter", 1, [FILM]))
    assert iterations_and_passages(found) == (2, 1.5)


def test_a_filter_that_leaves_nothing_leaves_nothing_to_read():
    found = prediction(("retrieve", 0, [FILM] * 50), ("filter", 0, []))
    assert (iterations_and_passages(found), words(found)) == ((1, 0), 0)


def test_questions_count_alike():
    one, three = prediction(("retrieve", 0, [FILM] * 5)), prediction(*(("retrieve", depth, [FILM] * 5) for depth in range(3)))
    assert iterations_and_passages(one, three) == (2, pytest.approx(5))
    assert set(efficiency([]).values()) == {0}


def test_passages_are_counted_by_calls_too():
    found = prediction(("retrieve", 0, [FILM] * 5), ("retrieve", 1, [FILM] * 3))
    calls = found.model_copy(update={"cost": found.cost.model_copy(update={"calls": 4})})
    assert efficiency([calls])["passages_per_call"] == 2


def test_knowledge_is_the_titles_and_texts_that_the_leaf_reads_in_all_iterations():
    # "Dune ( film )" is 4, "It is by Maria Torvel , 1984 ." is 8, "Born in Lyon" is 3.
    found = prediction(("retrieve", 0, [FILM] * 50), ("filter", 0, [FILM]), ("leaf", 0, []), ("filter", 1, [FILM, PERSON]))
    assert words(found) == 12 + 12 + 3


def test_what_is_condensed_is_read_to_be_condensed_and_once_more_as_it_is_left():
    # The filter's passages are 12 and 3, what is left of the first is 1 and 2; the second is called irrelevant.
    found = prediction(("filter", 0, [FILM, PERSON]), ("summ", 0, []), ("condensed", 0, [SHORTER]), ("leaf", 0, []))
    assert words(found) == 12 + 3 + 3


def test_without_a_filter_knowledge_is_what_was_retrieved():
    assert words(prediction(("retrieve", 0, [FILM, PERSON])), prediction(("retrieve", 0, [PERSON]))) == (15 + 3) / 2


def test_two_letters_without_spaces_between_words_are_a_token():
    assert words(prediction(("retrieve", 0, [FILM.model_copy(update={"title": "", "text": "灯塔建于一八七四年。"})]))) == 5 + 1


def test_the_runs_tokenizer_counts_where_there_is_one():
    # The fake's tokens are words with the white space before them: 2 and 6 of FILM, 3 of PERSON.
    found = efficiency([prediction(("retrieve", 0, [FILM, PERSON]))], tokenizer=FakeTokenizer())
    assert found["knowledge_tokens"] == 2 + 6 + 3


# Where a prompt of the Leaf Module, and one that condenses, shows passages.
SHOWN = defaultdict(lambda: "(?!)", {"Given": r"^Passage \d+: \(Title: (.*?)\) (.*)", "Extra": r"^(?:Title|Text): (.*)()"})


@pytest.mark.parametrize("compression", ["none", "sentences", "snippet"])
def test_migres_reads_the_knowledge_that_its_trace_says(compression):
    found = [Passage(id="1", title="Dune", text="Dune is a film. It has sand."), Passage(id="2", title="Oslo", text="It is a city.")]
    replies = {"Given": '{"useful_information": []}', "Answer": '{"answer": "unanswerable"}', "Based": '{"queries": ["Is Dune long?"]}'}
    llm = FakeLLM(lambda prompt: replies.get(prompt.split()[0], "irrelevant" if "Oslo" in prompt else "a film"))
    session = Session(Question(id="q", text="What is Dune?"), llm, FakeRetriever(lambda query: found), passages_per_query=2)
    reranker = "lexical" if compression == "sentences" else "none"
    # The model's own knowledge, which the Leaf Module would read too, is no external knowledge.
    options = migres.Options(compression=compression, reranker=reranker, relevance_threshold=0.1, no_knowledge_prompting=True)
    read = efficiency([asyncio.run(migres.decode(session.question, session, options))])["knowledge_tokens"]
    shown = [text for prompt in llm.texts("generate") for line in prompt.splitlines() for text in re.findall(SHOWN[prompt[:5]], line)]
    assert read == sum(len(re.findall(r"\w+|[^\w\s]", text)) for texts in shown for text in texts) > 0
