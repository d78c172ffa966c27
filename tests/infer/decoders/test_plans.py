"""Every decoder's plan holds what its questions really take, over passages and questions of real length."""

import asyncio
import importlib
import json
from pathlib import Path

import pytest
from helpers.baselines import RUNS

from infer.decoders.base import DECODERS, find_decoder
from infer.session import Session
from infer.steps.calls import Limits, Texts, planned
from refinery.llms.fake import FakeContext, FakeLLM
from refinery.questions.base import read_questions
from refinery.retrievers.fake import FakeRetriever

SAMPLE = Path(__file__).parents[3] / "recipes" / "sample" / "data" / "hotpotqa" / "test.json"
QUESTIONS = read_questions([SAMPLE], reader="hotpotqa", limit=6)
PASSAGES = [passage for question in QUESTIONS for passage in question.passages or []]
LIMITS = Limits(passages=3, answer=20)

MODULES = {
    "Given the following Question and Passages": {"useful_information": [{"info": "It is so.", "support_passages": [1, 2]}]},
    "Answer the Question based": {"solved": False, "missing_information": "the rest", "answer": "Lyon"},
    "Based on the Original Question": {"queries": ["Who is it?", "Where is it?", "When is it?"]},
    "Does the premise entail": {"entails": True},
}
DECISIONS = {"Can you use": ("know", "unknow"), "Please assess": ("relevant", "irrelevant")}


class CountingLLM(FakeLLM):
    """A fake that counts the tokens that it reads, all of a prompt anew for each call, as a chat endpoint does."""

    def context(self, prompt, *, usage=None):
        found = FakeLLM.context(self, prompt, usage=usage)
        return CountingContext(self, found.token_ids, found._usage)


class CountingContext(FakeContext):
    def _ask(self, call):
        self._usage.prefill_tokens += len(self._token_ids)
        return super()._ask(call)

    def _continued(self, token_ids):
        return CountingContext(self._llm, [*self._token_ids, *token_ids], self._usage)


def modules(text: str) -> str:
    return next((json.dumps(reply) for opening, reply in MODULES.items() if text.startswith(opening)), "Lyon is a city.")


def deciding(number: int):
    """RA-ISF's judges, who say the first or the second label, and a decomposition into two."""

    def say(text: str) -> str:
        for opening, labels in DECISIONS.items():
            if text.startswith(opening):
                return f" {labels[number]}"
        return "1. Who directed it?\n2. Where was she born?" if "decompos" in text.lower() else "Lyon"

    return say


def in_turn(replies: list[str]):
    left = iter(replies * 50)
    return lambda text: next(left)


def tree(text: str) -> str:
    return "Lyon" if text.endswith("[A_Response]") else "who is it?"


ANSWER, LONG = "The answer is Lyon [1].", "She was born there. " * 100 + "The answer is Lyon [1]."
CASES = [
    *((name, {}, in_turn(replies)) for name, (replies, _, _) in RUNS.items()),
    *((name, {}, lambda text: LONG) for name in RUNS),
    *((name, {"examples": "few"}, lambda text: LONG) for name in ("chain_of_thought", "ircot", "react", "self_ask", "least_to_most")),
    *((name, {"prompt": "rq_rag"}, lambda text: LONG) for name in ("chain_of_thought", "chain_of_note", "self_ask")),
    *((name, {}, lambda text: ANSWER) for name in ("direct", "rag", "replug")),
    *(("alce", {"strategy": name}, lambda text: LONG) for name in ("vanilla", "vanilla_s", "summ", "snippet", "rerank")),
    ("alce", {"strategy": "rerank", "entailment": "llm"}, lambda text: LONG),
    *(("re_thinking", options, lambda text: LONG) for options in ({}, {"judge_second_retrieval": True}, {"no_filtering": True})),
    *(("re_thinking", {name: True}, lambda text: "None.") for name in ("no_rethinking", "no_reinforcing")),
    *(("ra_isf", {"max_depth": depth}, deciding(number)) for depth in (0, 2) for number in (0, 1)),
    *(("ra_isf", {name: True}, deciding(1)) for name in ("no_self_knowledge", "no_passage_relevance", "no_decomposition")),
    *(("skr", {"judge": "trained"}, deciding(number)) for number in (0, 1)),
    ("ra_isf", {"relevance": "listwise"}, deciding(1)),
    *(("migres", {"reranker": "none", **options}, modules) for options in ({}, {"entailment": "llm"}, {"compression": "summ"})),
    ("migres", {"relevance_threshold": 1e9}, modules),
    ("migres", {"reranker": "none"}, lambda text: "not JSON"),
    ("migres", {"reranker": "none", "students": ["main", "leaf", "queries"]}, lambda text: "nothing"),
    *(("iter_retgen", {"generation": "answer", "reads": reads}, lambda text: ANSWER) for reads in ("last", "all")),
    *(("rq_rag", options, tree) for options in ({}, {"max_depth": 0}, {"adaptive": True}, {"width": 1}, {"actions": ["rewrite"]})),
    ("rq_rag", {"fidelity": "official", "max_depth": 1}, tree),
]
CASES += [
    (name, {}, lambda text: LONG) for name in DECODERS.shipped() if name not in {case[0] for case in CASES} | {"self_rag", "tool_search"}
]  # test_self_rag.py; and a scripted model has no chat template


def measured(decoder: str, options: dict, script) -> list:
    module = importlib.import_module(f"infer.decoders.{decoder}")
    searched = FakeRetriever(lambda query: PASSAGES[: LIMITS.passages])
    sessions = [
        Session(question, CountingLLM(script), searched, passages_per_query=LIMITS.passages, max_new_tokens=LIMITS.answer)
        for question in QUESTIONS
    ]

    async def decode():
        return [(await module.decode(session.question, session, module.Options(**options))).cost for session in sessions]

    return asyncio.run(decode())


@pytest.mark.parametrize(("decoder", "options", "script"), CASES, ids=[f"{name} {options}" for name, options, _ in CASES])
def test_a_question_takes_what_its_decoder_plans(decoder, options, script):
    texts = [[len(text) for text in found] for found in ((q.text for q in QUESTIONS), (f"{p.title} {p.text}" for p in PASSAGES))]
    found = find_decoder(decoder)
    plan = planned(found.plan(found.options(**options), LIMITS), Texts(*((min(sizes), max(sizes)) for sizes in texts)))
    for cost in measured(decoder, options, script):
        for spent, (least, most) in ((cost.calls, plan.calls), (cost.prefill_tokens, plan.read), (cost.decode_tokens, plan.written)):
            assert least <= spent <= most, (cost, plan)


def test_every_decoder_that_ships_has_a_plan():
    assert all(find_decoder(name).plan for name in DECODERS.shipped())
