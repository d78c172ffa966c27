import asyncio

from infer.session import Tools
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
    tools = Tools(question=question, llm=FakeLLM(lambda text: ""), retriever=FakeRetriever(script), passages_per_query=3)
    found = [asyncio.run(tools.search(query)) for query in ("down", "up")]
    assert [len(passages) for passages in found] == [0, 1]
    assert [(step.name, step.text) for step in tools.trace if step.name == "fault"] == [("fault", "search_failed: the web is down")]
    assert [step.passages is not None for step in tools.trace if step.name == "retrieve"] == [True, True]
