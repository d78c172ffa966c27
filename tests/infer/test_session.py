import asyncio

from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.errors import RetrievalError
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever


def test_a_search_that_cannot_be_made_is_a_fault_in_the_trace_and_finds_nothing():
    def script(query):
        if query == "down":
            raise RetrievalError("the web is down")
        return [Passage(id="a", text="Lyon")]

    question = Question(id="q", text="Where?")
    session = Session(question=question, llm=FakeLLM(lambda text: ""), retriever=FakeRetriever(script), passages_per_query=3)
    found = [asyncio.run(session.search(query)) for query in ("down", "up")]
    assert [len(passages) for passages in found] == [0, 1]
    assert [(step.name, step.text) for step in session.trace if step.name == "fault"] == [("fault", "search_failed: the web is down")]
    assert [step.passages is not None for step in session.trace if step.name == "retrieve"] == [True, True]
