"""Replies of the demo's teacher to the prompts of the refinement task's kinds: queries, and answers read from the passages found.

A question that is not about the world becomes the query unchanged if it asks something, and the first sentence found is the answer.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from refinery.demo.world.entities import Entity, EntityKind, World
from refinery.demo.world.questions import RELATIONS, parse_question

NO_ANSWER = "I cannot tell from these paragraphs."

_TITLE = re.compile(r"^Title: (.*)\nText: ", re.MULTILINE)
_FIRST_SENTENCE = re.compile(r"^Text: (.*?\.)(?:\s|$)", re.MULTILINE)
_CHOICE = re.compile(r"^([A-Z]): (.*)$", re.MULTILINE)
_READING = re.compile(r"^Reading: (.*)$", re.MULTILINE)
_SHORT_ANSWERS = re.compile(r"^Short answers: (.*)$", re.MULTILINE)


class RefinementReplies:
    """Replies by prompt name; each reads the question and the rest of the prompt after it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_name: dict[tuple[EntityKind, str], list[Entity]] = {}
        for entity in world.entities.values():
            for name in {entity.name, entity.title}:
                self._by_name.setdefault((entity.kind, name), []).append(entity)
        self.by_prompt: dict[str, Callable[[str, str], dict[str, Any]]] = {
            "teacher_refinement_dialogue": self._search_decision,
            "teacher_refinement_instruction": self._search_decision,
            "teacher_refinement_multiple_choice": lambda question, rest: {"queries": [question]},
            "teacher_refinement_multi_hop": lambda question, rest: {"queries": self._walk(question, rest)[0]},
            "teacher_refinement_ambiguous": lambda question, rest: {"queries": self._readings(question)},
            "teacher_answer_short": lambda question, rest: {"answer": self._short_answer(question, rest) or NO_ANSWER},
            "teacher_answer_choice": self._choice,
            "teacher_answer_chat": self._chat,
            "teacher_answer_ambiguous": self._long_answer,
        }

    def _search_decision(self, question: str, rest: str) -> dict[str, Any]:
        search = question.endswith("?")
        return {"search": search, "queries": [question] if search else []}

    def _choice(self, question: str, rest: str) -> dict[str, Any]:
        answer, choices = self._short_answer(question, rest), _CHOICE.findall(rest)
        return {"answer": next((letter for letter, choice in choices if choice == answer), choices[0][0])}

    def _chat(self, question: str, rest: str) -> dict[str, Any]:
        answer = self._short_answer(question, rest)
        return {"answer": f"It is {answer}." if answer else self._first_sentence(rest) or "All right."}

    def _long_answer(self, question: str, rest: str) -> dict[str, Any]:
        pairs = zip(_READING.findall(rest), _SHORT_ANSWERS.findall(rest), strict=False)
        return {"answer": " ".join(f"{reading} {answer}." for reading, answer in pairs)}

    def _readings(self, question: str) -> list[str]:
        """The question about each entity with that name, by its title."""
        parsed = parse_question(question)
        if parsed is None or len(parsed.names) != 1:
            return [question]
        titles = [subject.title for subject in self._called(parsed.names, parsed.chain[0])]
        return [question.replace(parsed.names[0], title) for title in titles] or [question]

    def _short_answer(self, question: str, rest: str) -> str | None:
        if parse_question(question) is None:
            return self._first_sentence(rest)
        return " and ".join(self._walk(question, rest)[1]) or None

    def _first_sentence(self, rest: str) -> str | None:
        sentence = _FIRST_SENTENCE.search(rest)
        return sentence[1] if sentence else None

    def _walk(self, question: str, rest: str) -> tuple[list[str], list[str]]:
        """The sub-questions that the shown passages make possible, with names filled in, and the final answers."""
        parsed, found = parse_question(question), set(_TITLE.findall(rest))
        if parsed is None:
            return [question], []
        if len(parsed.names) > 1:
            return self._compare(parsed.chain[0], parsed.names, found)
        queries, names = list[str](), list(parsed.names)
        for relation in parsed.chain:
            queries += [RELATIONS[relation].question.format(name) for name in names]
            subjects = [subject for subject in self._called(names, relation) if subject.title in found]
            names = list(dict.fromkeys(self._world.object_name(subject, relation) for subject in subjects))
        return queries, names

    def _compare(self, relation: str, names: Sequence[str], found: set[str]) -> tuple[list[str], list[str]]:
        queries = [RELATIONS[relation].question.format(name) for name in names]
        subjects = [subject for subject in self._called(names, relation) if subject.title in found]
        first = min(subjects, key=lambda subject: int(subject.facts[relation])) if len(subjects) >= len(names) else None
        return queries, [first.name] if first else []

    def _called(self, names: Sequence[str], relation: str) -> list[Entity]:
        kind = RELATIONS[relation].subject_kind
        return [entity for name in names for entity in self._by_name.get((kind, name), [])]
