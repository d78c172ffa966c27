"""RA-ISF with a scripted model and a scripted retriever."""

import asyncio
import re

from infer.decoders.ra_isf import Options, decode
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever
from refinery.tasks.relevance import IRRELEVANT, RELEVANT
from refinery.tasks.self_knowledge import KNOW, UNKNOW

WHOLE = "Where was the director of Dune born?"
DUNE, LYON = "Who directed Dune?", "Where was Maria Torvel born?"
FILM = Passage(id="film", title="Dune", text="Dune is a film directed by Maria Torvel.")
PERSON = Passage(id="person", title="Maria Torvel", text="Maria Torvel was born in Lyon.")
OTHER = Passage(id="other", title="Oslo", text="Oslo is a city.")
PASSAGES = [FILM, PERSON, OTHER]
ROLES = {
    "Can you use your own knowledge": "know",
    "Please assess whether": "relevance",
    "Please break down": "decompose",
    "Using the knowledge from": "passages",
    "Base on the sub-question": "synthesis",
    "Give the answer": "direct",
}


def role(text: str) -> str:
    return next(name for opening, name in ROLES.items() if text.startswith(opening))


class Model:
    """Scripts the five roles: what is known, which titles answer which question, and how a question is decomposed."""

    def __init__(self, *, known=(), relevant=None, decompositions=None, probs=None):
        self.known, self.relevant, self.decompositions = known, relevant or {}, decompositions or {}
        self.probs = probs or {}

    def __call__(self, text: str):
        kind = role(text)
        question = re.search(r"^(?:Question|The problem is): (.*)$", text, flags=re.MULTILINE)[1]
        if kind == "know":
            return self.probs.get(kind) or (KNOW if question in self.known else UNKNOW)
        if kind == "relevance":
            title = re.search(r"^Title: (.*)$", text, flags=re.MULTILINE)[1]
            return self.probs.get(kind) or (RELEVANT if title in self.relevant.get(question, ()) else IRRELEVANT)
        if kind == "decompose":
            return "".join(f"\n{i}. {sub}" for i, sub in enumerate(self.decompositions.get(question, []), 1))
        return f" {kind} answer"


def solve(model: Model, *, question: str = WHOLE, passages=PASSAGES, adapters=frozenset(), **options):
    llm, retriever = FakeLLM(model), FakeRetriever(lambda query: passages)
    asked = Question(id="q", text=question)
    session = Session(question=asked, llm=llm, retriever=retriever, passages_per_query=len(passages), adapters=frozenset(adapters))
    return asyncio.run(decode(asked, session, Options(**options))), llm, retriever


def prompts(llm: FakeLLM, kind: str) -> list[str]:
    return [call.text for call in llm.calls if role(call.text) == kind]
