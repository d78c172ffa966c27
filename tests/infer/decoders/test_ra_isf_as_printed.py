"""RA-ISF's decoder against Algorithm 1 as the paper prints it: worlds in which every judgement is a hash of what is judged."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer.decoders.ra_isf import Options, decode
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.contract.sub_questions import render_sub_questions
from refinery.llms.fake import FakeLLM
from refinery.prompts.render import render_prompt
from refinery.retrievers.fake import FakeRetriever
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.tasks.relevance import IRRELEVANT, RELEVANT
from refinery.tasks.self_knowledge import KNOW, UNKNOW
from tests.reference.ra_isf import problem_solving

SHARED = Path(__file__).parents[4] / "shared" / "data"
FILES = ("hotpotqa/hotpot_dev_distractor_v1.json", "2wikimultihopqa/dev.json", "musique/musique_ans_v1.0_dev.jsonl", "strategyqa/dev.json")


@dataclass
class World:
    """Sub-models that judge by a hash of `seed` and what they read, and an answering model that writes a hash of its prompt.

    Two answers are equal only if the model read the same to write them, and so on down to the last sub-question. `asked` is what the plain
    algorithm asked, as (role, what it was asked about).
    """

    seed: int
    questions: Sequence[str]
    passages: Sequence[Passage]
    known: float = 0.2
    relevant: float = 0.1
    asked: list[tuple[str, str]] = field(default_factory=list)

    def chance(self, *key: str) -> float:
        return int(text_fingerprint([str(self.seed), *key])[:8], 16) / 16**8

    def pick(self, items: Sequence, *key: str):
        return items[int(self.chance(*key) * len(items))]

    def found(self, question: str) -> list[Passage]:
        return [self.pick(self.passages, "found", question, str(i)) for i in range(int(self.chance("k", question) * 4))]

    def parts(self, question: str) -> list[str]:
        """None to three sub-questions: other questions, the same one, one in other letters, or the same twice."""
        others = [*self.questions, question, question.upper(), f"{question} (again)"]
        # M_decom writes a list, in which the white space around an item is not part of it.
        return [self.pick(others, "part", question, str(i)).strip() for i in range(int(self.chance("n", question) * 4))]

    def judge(self, role: str, question: str, passage: Passage | None = None) -> bool:
        about = f"{question}\n{passage.title}\n{passage.text}" if passage else question
        return self.chance(role, about) < (self.relevant if passage else self.known)

    def writes(self, prompt: str) -> str:
        return f"answer {text_fingerprint([prompt])[:16]}" if self.chance("writes", prompt) > 0.05 else ""

    # Algorithm 1's models

    def knows(self, question: str) -> bool:
        self.asked.append(("know", question))
        return self.judge("know", question)

    def retrieve(self, question: str) -> list[Passage]:
        self.asked.append(("retrieve", question))
        return self.found(question)

    def is_relevant(self, question: str, passage: Passage) -> bool:
        self.asked.append(("relevance", f"{question}\n{passage.title}"))
        return self.judge("relevance", question, passage)

    def decompose(self, question: str) -> list[str]:
        self.asked.append(("decompose", question))
        return self.parts(question)

    def answer(self, question: str) -> str:
        return self.write(render_prompt("answer_direct", question=question))

    def answer_from_passages(self, question: str, passages: Sequence[Passage]) -> str:
        return self.write(render_prompt("answer_with_passages", question=question, passages=passages))

    def answer_from_sub_answers(self, question: str, sub_answers: Sequence[tuple[str, str]]) -> str:
        return self.write(render_prompt("answer_from_sub_answers", question=question, sub_answers=sub_answers))

    def write(self, prompt: str) -> str:
        self.asked.append(("write", str(prompt)))
        return self.writes(str(prompt))

    # The same for the decoder

    def script(self, prompt: str) -> str:
        role, about = read(prompt)
        question, _, title = about.partition("\n")
        if role == "know":
            return KNOW if self.judge(role, question) else UNKNOW
        if role == "relevance":
            passage = next(p for p in self.found(question) if p.title == title)
            return RELEVANT if self.judge(role, question, passage) else IRRELEVANT
        return render_sub_questions(self.parts(question)) if role == "decompose" else self.writes(prompt)


def read(prompt: str) -> tuple[str, str]:
    """The role that a prompt is for, and what it is about, as in `World.asked`."""
    openings = {"Can you use your own": "know", "Please assess whether": "relevance", "Please break down": "decompose"}
    role = next((role for opening, role in openings.items() if prompt.startswith(opening)), "write")
    lines = dict(re.findall(r"^(Question|The problem is|Title): (.*)$", prompt, flags=re.MULTILINE)) if role != "write" else {}
    return role, "\n".join(lines[name] for name in ("Question", "The problem is", "Title") if name in lines) or prompt


def solve(world: World, question: str, **options):
    """The decoder's prediction, and what it asked in the form of `World.asked`."""
    llm, retriever = FakeLLM(world.script), FakeRetriever(world.found)
    session = Session(Question(id="q", text=question), llm, retriever, 9, max_new_tokens=9)
    prediction = asyncio.run(decode(session.question, session, Options(max_sub_question_tokens=10_000, **options)))
    return prediction, [*(read(call.text) for call in llm.calls), *(("retrieve", query) for query in retriever.calls)]


def agrees(world: World, question: str, **options) -> bool:
    """The same answer, from the same questions asked; what was asked of a sub-model is not asked again."""
    plain = problem_solving(question, 0, world, **options)
    prediction, asked = solve(world, question, retrieval_length=None, **options)
    undecided = [entry for entry in asked if entry[0] in ("know", "retrieve", "decompose")]
    return prediction.answer == (plain or "Unknow") and set(asked) == set(world.asked) and len(undecided) == len(set(undecided))


def real_questions() -> list[tuple[str, list[Passage]]]:
    """Fifty questions of four datasets, with the paragraphs around them."""
    if not SHARED.is_dir():
        pytest.skip("needs shared/data")
    rows = [row for file in FILES for row in rows_of(SHARED / file)[:13]][:50]
    return [(row["question"], paragraphs(row)) for row in rows]


def rows_of(path: Path) -> list[dict]:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


def paragraphs(row: dict) -> list[Passage]:
    listed = [(p["title"], p["paragraph_text"]) for p in row.get("paragraphs", ())]
    listed += [(title, " ".join(sentences)) for title, sentences in row.get("context", ())]
    listed = listed or [(row["term"], fact) for fact in row["facts"]]
    return [Passage(id=str(i), title=f"{title} {i}", text=" ".join(text.split())) for i, (title, text) in enumerate(listed)]


@pytest.mark.parametrize("answer_from", ["relevant", "all"])
@pytest.mark.parametrize("max_depth", [0, 1, 2, 3])
def test_fifty_real_questions_are_answered_as_by_algorithm_1(max_depth, answer_from):
    questions = real_questions()
    texts = [text for text, _ in questions]
    worlds = [World(seed, texts, found) for seed, (_, found) in enumerate(questions)]
    agree = [agrees(world, text, max_depth=max_depth, answer_from=answer_from) for world, text in zip(worlds, texts, strict=True)]
    assert (sum(agree), len(agree)) == (50, 50)


questions_of_a_world = st.lists(
    st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1).map(lambda text: f"What {' '.join(text.split())}?"),
    min_size=1,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(
    questions=questions_of_a_world,
    seed=st.integers(0, 10**6),
    known=st.sampled_from([0.0, 0.2, 0.5]),
    relevant=st.sampled_from([0.0, 0.1, 0.5]),
    max_depth=st.integers(0, 3),
    answer_from=st.sampled_from(["relevant", "all"]),
)
def test_every_scripted_world_is_solved_as_by_algorithm_1(questions, seed, known, relevant, max_depth, answer_from):
    passages = [Passage(id=str(i), title=f"Title {i}", text=f"Text {i}.") for i in range(4)]
    world = World(seed, questions, passages, known, relevant)
    assert agrees(world, questions[0], max_depth=max_depth, answer_from=answer_from)


def test_a_world_in_which_nothing_is_known_reaches_every_line():
    """So that the tests above do not agree about nothing: cycles, empty decompositions and the depth limit all occur."""
    texts = [f"What is {i}?" for i in range(4)]
    worlds = [World(seed, texts, [Passage(id="p", title="T", text="t")], known=0.1) for seed in range(40)]
    parts = [(text, world.parts(text)) for world in worlds for text in texts]
    assert any(not subs for _, subs in parts)
    assert any(text in subs for text, subs in parts)
    assert any(len(subs) > len(set(subs)) for _, subs in parts)
    traces = [solve(world, texts[0], max_depth=2)[0].trace for world in worlds]
    assert any(step.name == "unresolved" for trace in traces for step in trace)
