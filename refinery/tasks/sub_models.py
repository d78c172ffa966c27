"""The contract of the sub-models, RA-ISF's three and RQ-RAG's selector: their prompts, labels and reply format, shared by training and
inference."""

import json
import re
from collections.abc import Sequence
from functools import cache

from refinery.contract.formats import evidence_text
from refinery.contract.records import KnowledgeLabel, Passage, RelevanceLabel, SelectionLabel, Step, Trajectory
from refinery.prompts.render import render_prompt

# Labels as the released data writes them (ra-isf README), with the space that sets them off from "Answer:".
KNOW, UNKNOW = " know", " unknow"
RELEVANT, IRRELEVANT = " relevant", " irrelevant"
RIGHT, WRONG = " right", " wrong"
# What each judge answers, the positive label last.
JUDGE_LABELS = {"self_knowledge": (UNKNOW, KNOW), "relevance": (IRRELEVANT, RELEVANT), "selection": (WRONG, RIGHT)}
JudgeLabel = KnowledgeLabel | RelevanceLabel | SelectionLabel
# Stands where a question or a passage is filled in; no text has it.
_SLOT = "\0"


def knowledge_prompt(question: str) -> str:
    """What M_know reads; it answers KNOW or UNKNOW."""
    return render_prompt("self_knowledge", question=question)


def relevance_prompt(question: str, passage: Passage) -> str:
    """What M_rel reads; it answers RELEVANT or IRRELEVANT."""
    return render_prompt("relevance", question=question, passage=passage)


def selection_prompt(path: Trajectory) -> str:
    """What a selector reads of a tree's path; it answers RIGHT or WRONG.

    Queries and answer stand on one line each, as the passages do, so that none of them can forge a search or another answer.
    """
    *searches, answer = path.steps
    shown = [{"query": _one_line(step.text), "evidence": evidence_text(step.passages)} for step in searches]
    return render_prompt("selection", question=_one_line(path.question), searches=shown, answer=_one_line(answer.text))


def judge_prompt(record: JudgeLabel) -> str:
    """What the judge reads that a label is for."""
    if isinstance(record, KnowledgeLabel):
        return knowledge_prompt(record.question)
    if isinstance(record, RelevanceLabel):
        return relevance_prompt(record.question, record.passage)
    return selection_prompt(record.path)


def judged_parts(prompt: str) -> tuple[str, str] | None:
    """The question and the passage (title and text, "" for M_know) that a judge's prompt was rendered from; None for another prompt.

    Of a selector's these are the question with the proposed answer, and the searches with what they found. What an encoder reads: it has
    no use for the instruction.
    """
    if found := re.fullmatch(_selection_pattern(), prompt, flags=re.DOTALL):
        return f"{found['question']}\n{found['answer']}", found["searches"].rstrip()
    for parts in (_slots(knowledge_prompt(_SLOT)), _slots(relevance_prompt(_SLOT, Passage(id="", title=_SLOT, text=_SLOT)))):
        if found := re.fullmatch("(.*?)".join(map(re.escape, parts)), prompt, flags=re.DOTALL):
            question, *passage = found.groups()
            return question, "\n".join(part for part in passage if part)
    return None


@cache
def _selection_pattern() -> str:
    answer = Step(action="answer", text=_SLOT)
    opening, between, closing = map(re.escape, _slots(selection_prompt(Trajectory(question_id="", question=_SLOT, steps=[answer]))))
    return rf"{opening}(?P<question>.*?)\n(?P<searches>.*){between.removeprefix(re.escape(chr(10)))}(?P<answer>.*?){closing}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _slots(prompt: str) -> list[str]:
    return prompt.split(_SLOT)


def decomposition_prompt(question: str) -> str:
    """What M_decom reads; it answers with `render_sub_questions`' text."""
    return render_prompt("decomposition", question=question)


def render_sub_questions(sub_questions: Sequence[str]) -> str:
    """A numbered list, one sub-question a line."""
    return "".join(f"\n{number}. {text}" for number, text in enumerate(sub_questions, 1))


def parse_sub_questions(text: str) -> list[str]:
    """The sub-questions of a numbered list, or of the released data's `{"query": [...]}`; empty where there are none."""
    try:
        listed = json.loads(text)["query"]
        return [item.strip() for item in listed if isinstance(item, str) and item.strip()]
    except (ValueError, TypeError, KeyError):
        return [item.strip() for item in re.findall(r"^\s*\d+[.)]\s*(\S.*)$", _on_lines(text), flags=re.MULTILINE)]


def _on_lines(text: str) -> str:
    """A list that is all on one line, as T5 writes it whose tokenizer knows no line breaks, with each next number on a line of its own."""
    if "\n" in text:
        return text
    number, start = 2, 0
    while found := re.compile(rf" (?={number}[.)] )").search(text, start):
        start = found.start()
        text = f"{text[:start]}\n{text[start + 1 :]}"
        number += 1
    return text


def fill_references(sub_question: str, answers: Sequence[str]) -> str:
    """Put earlier answers where a sub-question refers to them: `#1` is the first (MuSiQue's notation)."""
    return re.sub(r"#(\d+)", lambda m: answers[int(m[1]) - 1] if 0 < int(m[1]) <= len(answers) else m[0], sub_question)
