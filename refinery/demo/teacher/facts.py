"""The knowledge of the demo's teacher: facts, the one sentence that states each, and how far they lead toward a question's answer.

A statement that the teacher writes into a reply ("The director of Bitter Anchor is Mara Kelby.") is read back from a later prompt.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refinery.contract.sub_questions import fill_references
from refinery.demo.world.questions import AMBIGUOUS_RELATIONS, NAMESAKES_QUERY, RELATIONS, decompose, parse_question

UNKNOWN = "unknown"


def _head(relation: str) -> str:
    """The beginning of a relation's statement, up to the subject."""
    phrase = RELATIONS[relation].phrase.format("")
    return phrase[0].upper() + phrase[1:]


_RELATION_BY_HEAD = {_head(relation): relation for relation in RELATIONS}
_STATEMENT = re.compile(rf"({'|'.join(map(re.escape, _RELATION_BY_HEAD))})([^.\n]+?) is ([^.\n]+)\.")


@dataclass(frozen=True, slots=True)
class Fact:
    """`subject` is its passage's title, so that films that share a name stay apart: "Bitter Anchor (1950 film)"."""

    relation: str
    subject: str
    object: str

    @property
    def name(self) -> str:
        """The subject's name in questions."""
        return re.sub(r" \(\d+ film\)$", "", self.subject)

    @property
    def statement(self) -> str:
        """The sentence that states the fact."""
        return f"{_head(self.relation)}{self.subject} is {self.object}."


def read_statements(text: str) -> list[Fact]:
    """The facts that a text states in the teacher's own sentences, in their order."""
    return [Fact(_RELATION_BY_HEAD[head], subject, object_) for head, subject, object_ in _STATEMENT.findall(text)]


@dataclass(frozen=True, slots=True)
class Solution:
    """How far facts lead: those that were `used`, the `answer` if they reach it, else the searches that are `missing`.

    Each search is given in several wordings, the first one to be tried first. `guess` is the best answer that can be given at this point.
    """

    used: list[Fact]
    answer: str | None = None
    missing: tuple[tuple[str, ...], ...] = ()
    guess: str = UNKNOWN

    @property
    def statements(self) -> list[str]:
        """The sentences of the facts used."""
        return [fact.statement for fact in self.used]

    def next_searches(self, asked: str) -> list[str]:
        """For each missing search, the first wording that does not occur in `asked`, the text of earlier searches."""
        return [wording for search in self.missing for wording in untried(search, asked)[:1]]


def solve(question: str, facts: Iterable[Fact]) -> Solution:
    """Follow the facts from the entity that the question names. For other kinds of questions, every fact about a named entity is used."""
    known = list(dict.fromkeys(facts))
    parsed = parse_question(question)
    if parsed is None:
        return Solution([fact for fact in known if fact.name in question], missing=((question,),))
    if len(parsed.names) == 2:
        return _compare(parsed.chain[0], parsed.names, known)
    names, used = list(parsed.names), list[Fact]()
    for relation in parsed.chain:
        found = [fact for name in names for fact in _about(name, relation, known)]
        used += found
        objects = list(dict.fromkeys(fact.object for fact in found))
        if open_names := [name for name in names if not _about(name, relation, known)]:
            return Solution(used, missing=(searches(relation, open_names[0]),))
        if lone := _lone_namesake(found, names):
            # The title shows that another film has the same name, so an answer for one of them is only half.
            guess = objects[0] if relation == parsed.chain[-1] else UNKNOWN
            return Solution(used, missing=((NAMESAKES_QUERY.format(lone),),), guess=guess)
        names = objects
    answer = " and ".join(names)
    return Solution(used, answer, guess=answer)


def solve_parts(questions: Sequence[tuple[str, str]]) -> list[Fact]:
    """The facts in pairs of a single-hop question and its answer. `#1` in a question refers to the first one's answer."""
    answers = [answer for _, answer in questions]
    parsed = [(parse_question(fill_references(question, answers)), answer) for question, answer in questions if answer != UNKNOWN]
    return [Fact(asked.chain[0], asked.names[0], answer) for asked, answer in parsed if asked and len(asked.chain) == len(asked.names) == 1]


def searches(relation: str, name: str) -> tuple[str, ...]:
    """The search for a fact, in several wordings."""
    return RELATIONS[relation].question.format(name), RELATIONS[relation].query.format(name)


def untried(search: Sequence[str], asked: str) -> list[str]:
    """The wordings of a search that are not among those `asked`."""
    return [wording for wording in search if f" {wording} " not in f" {asked} "]


def sub_questions(question: str) -> list[str]:
    """The single-hop questions that a question consists of; itself, if it is of another kind."""
    parsed = parse_question(question)
    # Each of a comparison's names has its own sub-question; any other question has one name.
    return [part for name in parsed.names for part in decompose(parsed.chain, name)] if parsed else [question]


def _about(name: str, relation: str, facts: Sequence[Fact]) -> list[Fact]:
    of_relation = [fact for fact in facts if fact.relation == relation]
    exact = [fact for fact in of_relation if fact.subject == name]
    return exact or [fact for fact in of_relation if fact.name == name]


def _lone_namesake(found: Sequence[Fact], names: Sequence[str]) -> str | None:
    """The name under which one film was found although its title names a year to tell it from another."""
    lone = len(found) == 1 and found[0].relation in AMBIGUOUS_RELATIONS and found[0].subject not in names
    return found[0].name if lone else None


def _compare(relation: str, names: Sequence[str], facts: Sequence[Fact]) -> Solution:
    used = [fact for name in names for fact in _about(name, relation, facts)]
    known = {fact.name for fact in used}
    if missing := tuple(searches(relation, name) for name in names if name not in known):
        return Solution(used, missing=missing)
    first = min(used, key=lambda fact: fact.object).name  # years of four digits
    return Solution(used, first, guess=first)
