"""Replies of the demo's teacher to the prompts of MIGRES' modules, and to those that shorten or check a passage for them."""

import json
import re

from refinery.demo.teacher.facts import Fact, Solution, read_statements, solve
from refinery.demo.teacher.prompt_form import PromptForm, shown_passages
from refinery.demo.teacher.reader import Reader, Replies
from refinery.demo.world.questions import compare_years, parse_question

_JOINED_QUERIES = re.compile(r"(?<=\?) ")
_HISTORY = re.compile(r"^Historical Questions: (.*)$", re.MULTILINE)


class MigresReplies:
    """`by_form` holds the replies; each reads the question and the rest of the prompt."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.by_form: Replies = [
            (PromptForm("migres_knowledge"), self._knowledge),
            (PromptForm("migres_entailment"), self._entailment),
            (PromptForm("condense_summ"), self._summary),
            (PromptForm("condense_snippet"), self._snippet),
        ]
        for examples in ("few", "zero"):  # few first: the pattern of zero would read the examples as a question and the text after it
            self.by_form += [
                (PromptForm("migres_leaf", examples=examples), self._leaf),
                (PromptForm("migres_main", examples=examples, last=False, yes_no=False), self._main),
                (PromptForm("migres_main", examples=examples, last=True, yes_no=False), self._last_main),
                (PromptForm("migres_queries", examples=examples), self._queries),
            ]

    def _leaf(self, question: str, rest: str) -> str:
        """One item for each fact on the way to a query's answer, with the passage that states it."""
        by_passage = [(shown.number, fact) for shown in shown_passages(rest) for fact in self._reader.passage(shown.title, shown.text)]
        facts = [fact for _, fact in by_passage]
        useful = {fact for query in _JOINED_QUERIES.split(question) for fact in solve(query, facts).used}
        items = [{"info": fact.statement, "support_passages": [number]} for number, fact in by_passage if fact in useful]
        return _json({"useful_information": items})

    def _main(self, question: str, rest: str) -> str:
        """The answer from the information alone, or the searches that are still missing."""
        solution = solve(question, self._reader.facts(rest))
        if solution.answer:
            return _json({"answer": solution.answer, "explanation": _explanation(question, solution), "missing_information": ""})
        missing = " ".join(search[0] for search in solution.missing)
        return _json({"answer": "unanswerable", "explanation": "The information is not sufficient.", "missing_information": missing})

    def _last_main(self, question: str, rest: str) -> str:
        """The answer from the information and from memory, or a guess."""
        solution = solve(question, [*self._reader.facts(rest), *self._reader.memory])
        return _json({"answer": solution.guess, "explanation": f"The information is {'' if solution.answer else 'not '}sufficient."})

    def _queries(self, question: str, rest: str) -> str:
        """The searches that are still missing, in wordings that were not tried yet."""
        asked = "".join(_HISTORY.findall(rest))
        return _json({"queries": solve(question, self._reader.facts(rest)).next_searches(asked)})

    def _knowledge(self, question: str, rest: str) -> str:
        known = [statement for query in _JOINED_QUERIES.split(question) for statement in solve(query, self._reader.memory).statements]
        return " ".join(known) or "none"

    def _entailment(self, hypothesis: str, premise: str) -> str:
        """Yes if the hypothesis states facts and the premise, a title and a text, states all of them too."""
        stated = read_statements(hypothesis)
        said = {fact for of in stated if of.subject in premise for fact in self._reader.passage(of.subject, premise)}
        return _json({"entails": bool(stated) and said.issuperset(stated)})

    def _summary(self, question: str, rest: str) -> str:
        return " ".join(fact.statement for fact in self._helpful(question, rest)) or "irrelevant"

    def _snippet(self, question: str, rest: str) -> str:
        (shown,) = shown_passages(rest)
        helpful = self._helpful(question, rest)
        sentences = [text for text in re.split(r"(?<=\.) ", shown.text) if any(fact.object in text for fact in helpful)]
        return " ".join(sentences[:2]) or "irrelevant"

    def _helpful(self, question: str, rest: str) -> list[Fact]:
        """Facts of one passage that may help. The passage alone does not show whether a fact leads to a longer question's answer."""
        facts, helpful = self._reader.facts(rest), list[Fact]()
        for query in _JOINED_QUERIES.split(question):
            parsed = parse_question(query)
            later = parsed.chain[1:] if parsed else ()
            helpful += [*solve(query, facts).used, *(fact for fact in facts if fact.relation in later)]
        return list(dict.fromkeys(helpful))


def _explanation(question: str, solution: Solution) -> str:
    """For a comparison, the compared years: a student this small can only compare years that it has written beside the names."""
    parsed = parse_question(question)
    if parsed is None or len(parsed.names) == 1:
        return "The information is sufficient."
    return compare_years(parsed.chain[0], {fact.name: fact.object for fact in solution.used})


def _json(reply: dict[str, object]) -> str:
    return json.dumps(reply, ensure_ascii=False)
