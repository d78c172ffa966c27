"""MIGRES' modules played by a script, for a question of two hops: what the tests of its decoder share."""

import asyncio
import json
import re
from collections.abc import Callable

from infer.decoders.migres import Options, decode
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever

WHOLE = "Where was the director of Dune born?"
BORN = "Where was Maria Torvel born?"
FILM = Passage(id="film", title="Dune", text="Dune is a film directed by Maria Torvel.")
PERSON = Passage(id="person", title="Maria Torvel", text="She likes tea. Maria Torvel was born in Lyon. She owns a cat.")
OTHER = Passage(id="other", title="Oslo", text="Oslo is a city.")
DIRECTED, LYON = "Maria Torvel directed Dune.", "Maria Torvel was born in Lyon."
MARKS = {
    "Given the following Question and Passages": "leaf",
    "Answer the Question based": "main",
    "Based on the Original Question": "queries",
    "Generate relevant information": "knowledge",
    "Does the premise entail": "entailment",
}
LOOSE = {"relevance_threshold": 0.1}  # BM25 among two or three passages gives small scores


def module(text: str) -> str:
    return next(name for opening, name in MARKS.items() if text.startswith(opening))


def extract(*statements: tuple[str, list[int]]) -> str:
    return json.dumps({"useful_information": [{"info": info, "support_passages": cited} for info, cited in statements]})


def line(name: str, text: str) -> str:
    return re.search(rf"^{name}: (.*)$", text, flags=re.MULTILINE)[1]


class Model:
    """Plays the modules for the two hops of WHOLE; a module's name replaces what it says, by a text or by a function of the prompt."""

    def __init__(self, **replies: str | Callable[[str], str]):
        self.replies = replies

    def __call__(self, text: str) -> str:
        reply = self.replies.get(module(text), getattr(self, module(text)))
        return reply if isinstance(reply, str) else reply(text)

    def leaf(self, text: str) -> str:
        passages = dict(re.findall(r"^Passage (\d+): \(Title: (.*?)\)", text, flags=re.MULTILINE))
        knows = {"Dune": DIRECTED, "Maria Torvel": LYON}
        return extract(*((knows[title], [int(number)]) for number, title in passages.items() if title in knows))

    def main(self, text: str) -> str:
        solved = LYON in line("Information", text)
        answer, missing = ("Lyon", "") if solved else ("unanswerable", "The place of birth of Maria Torvel.")
        return json.dumps({"answer": answer, "explanation": "Because.", "missing_information": missing})

    def queries(self, text: str) -> str:
        return json.dumps({"queries": [BORN]})

    def knowledge(self, text: str) -> str:
        return "Maria Torvel is a director."

    def entailment(self, text: str) -> str:
        return json.dumps({"entails": True})


def solve(model: Model | None = None, *, found=None, sub_models=None, **options):
    """Decode WHOLE; `found` replaces what a query finds, `sub_models` play roles."""
    finds = {WHOLE: [FILM, OTHER], BORN: [FILM, PERSON]} | (found or {})
    llm, retriever = FakeLLM(model or Model()), FakeRetriever(lambda query: finds.get(query, []))
    question = Question(id="q", text=WHOLE)
    session = Session(question=question, llm=llm, retriever=retriever, passages_per_query=50, sub_models=sub_models or {})
    return asyncio.run(decode(question, session, Options(**(LOOSE | options)))), llm, retriever


def prompts(llm: FakeLLM, name: str) -> list[str]:
    return [call.text for call in llm.calls if module(call.text) == name]


def asked(llm: FakeLLM) -> list[str]:
    return [module(call.text) for call in llm.calls]


def faults(prediction) -> list[str]:
    return [step.text.partition(":")[0] for step in prediction.trace if step.name == "fault"]


def titles(prompt: str) -> list[str]:
    return re.findall(r"^Passage \d+: \(Title: (.*?)\)", prompt, flags=re.MULTILINE)


NEVER = {"main": json.dumps({"answer": "unanswerable", "missing_information": "Everything."})}


def numbered_queries():
    count = iter(range(99))
    return lambda text: json.dumps({"queries": [f"query {next(count)} Dune" for _ in range(5)]})
