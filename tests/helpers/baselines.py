"""A baseline over a scripted model and a scripted retriever, and one whole run of each."""

import asyncio
import importlib

from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever

QUERY = "Where was the director of Dune born?"
FILM = Passage(id="film", title="Dune", text="Dune is a film directed by Maria Torvel.")
PERSON = Passage(id="person", title="Maria Torvel", text="Maria Torvel was born in Lyon.")


def solve(decoder, script, *, found=None, retriever=True, answer_style="paper", **options):
    """Decode QUERY with what the model says to each prompt, in order if `script` is a list."""
    module, replies = importlib.import_module(f"infer.decoders.{decoder}"), iter(script if isinstance(script, list) else ())
    llm = FakeLLM(script if callable(script) else lambda text: next(replies))
    searched = FakeRetriever(lambda query: found if found is not None else [PERSON] if "Torvel" in query else [FILM])
    session = Session(
        question=Question(id="q", text=QUERY),
        llm=llm,
        retriever=searched if retriever else None,
        passages_per_query=3,
        answer_style=answer_style,
    )
    return asyncio.run(module.decode(session.question, session, module.Options(**options))), llm, searched


def faults(prediction):
    return [step.text.partition(":")[0] for step in prediction.trace if step.name == "fault"]


RUNS = {
    "chain_of_thought": (["Maria directed it. She was born in Lyon. The answer is Lyon."], 1, [QUERY]),
    "chain_of_note": (["Passage 1 names the director. The answer is Lyon."], 1, [QUERY]),
    "least_to_most": (
        [
            "1. Who directed Dune?\n2. Where was Maria Torvel born?",
            "The answer is Maria Torvel",
            "The answer is Lyon.",
            "The answer is Lyon",
        ],
        4,
        ["Who directed Dune?", "Where was Maria Torvel born?", QUERY],
    ),
    "self_ask": (
        [
            "Yes.\nFollow up: Who directed Dune?\nIntermediate answer: Bob.\nSo the final answer is: Oslo",
            "Maria Torvel.\nFollow up: Where was Maria Torvel born?",
            "In Lyon.\nSo the final answer is: Lyon",
        ],
        3,
        ["Who directed Dune?", "Where was Maria Torvel born?"],
    ),
    "ircot": (
        ["Dune was directed by Maria Torvel. And more.", "She was born in Lyon, so the answer is: Lyon.", "The answer is Lyon."],
        3,
        [QUERY, "Dune was directed by Maria Torvel."],
    ),
    "iter_retgen": (
        ["It is Maria Torvel. The answer is unknown.", "The answer is Lyon."],
        2,
        [QUERY, f"{QUERY} It is Maria Torvel. The answer is unknown."],
    ),
    "react": (
        [
            " I need the director.\nAction: Search[director of Dune]\nObservation: it is Bob.\nAction: Finish[Oslo]",
            " Now her birth.\nAction: Search[Maria Torvel]",
            " I know.\nAction: Finish[Lyon]",
        ],
        3,
        ["director of Dune", "Maria Torvel"],
    ),
    "plan_and_solve": (["Plan: 1. find her. Solution: ... The answer is Lyon."], 1, [QUERY]),
    "self_criticism": (["The answer is Oslo.", "Oslo is wrong.", "The answer is Lyon."], 3, [QUERY]),
}
