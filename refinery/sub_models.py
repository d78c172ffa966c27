"""The contract of RA-ISF's three sub-models: their prompts, labels and reply format, shared by training and inference."""

import json
import re
from collections.abc import Sequence

from refinery.prompts.render import render_prompt
from refinery.records import Passage

# Labels as the released data writes them (ra-isf README), with the space that sets them off from "Answer:".
KNOW, UNKNOW = " know", " unknow"
RELEVANT, IRRELEVANT = " relevant", " irrelevant"
# What each judge answers, the positive label last.
JUDGE_LABELS = {"self_knowledge": (UNKNOW, KNOW), "relevance": (IRRELEVANT, RELEVANT)}
# Stands where a question or a passage is filled in; no text has it.
_SLOT = "\0"


def knowledge_prompt(question: str) -> str:
    """What M_know reads; it answers KNOW or UNKNOW."""
    return render_prompt("self_knowledge", question=question)


def relevance_prompt(question: str, passage: Passage) -> str:
    """What M_rel reads; it answers RELEVANT or IRRELEVANT."""
    return render_prompt("relevance", question=question, passage=passage)


def judged_parts(prompt: str) -> tuple[str, str] | None:
    """The question and the passage (title and text, "" for M_know) that a judge's prompt was rendered from; None for another prompt.

    What an encoder reads: it has no use for the instruction.
    """
    for parts in (_slots(knowledge_prompt(_SLOT)), _slots(relevance_prompt(_SLOT, Passage(id="", title=_SLOT, text=_SLOT)))):
        if found := re.fullmatch("(.*?)".join(map(re.escape, parts)), prompt, flags=re.DOTALL):
            question, *passage = found.groups()
            return question, "\n".join(part for part in passage if part)
    return None


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
