"""Replies of the demo's teacher to the prompts of re-thinking: short, regular texts, which a small student can learn to write."""

from refinery.demo.teacher.facts import searches, solve, untried
from refinery.demo.teacher.prompt_form import SLOT, PromptForm, shown_passages
from refinery.demo.teacher.reader import Reader, Replies

NOTHING_MISSING = "Nothing is missing."


class ReThinkingReplies:
    """`by_form` holds the replies; each reads the query and the rest of the prompt."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.by_form: Replies = [
            (PromptForm("re_thinking_relevance"), self._relevance),
            *((PromptForm("re_thinking_thinking", relevance=relevance), self._thinking) for relevance in (SLOT, "")),
            *(
                (PromptForm("re_thinking_query", relevance=relevance, thinking=thinking, may_stop=may_stop), reply)
                for relevance, thinking in (("", SLOT), (SLOT, ""), ("", ""))
                for may_stop, reply in ((True, self._query_or_none), (False, self._query))
            ),
            (PromptForm("re_thinking_answer"), self._answer),
        ]

    def _relevance(self, query: str, rest: str) -> str:
        """A verdict on each passage. It keeps those on the way to the answer, even if they lead only part of the way."""
        useful = {fact.subject for fact in solve(query, self._reader.facts(rest)).used}
        lines = [
            f"Knowledge {shown.number}: {'keep' if shown.title in useful else 'remove'}, because it is about {shown.title}."
            for shown in shown_passages(rest)
        ]
        return "\n".join(lines) or "There is no knowledge."

    def _thinking(self, query: str, rest: str) -> str:
        solution = solve(query, self._reader.facts(rest))
        missing = [f"Missing: {search[0]}" for search in solution.missing]
        return " ".join([*solution.statements, *(missing or [NOTHING_MISSING])])

    def _query_or_none(self, query: str, rest: str) -> str:
        return "none" if NOTHING_MISSING in rest else self._query(query, rest)

    def _query(self, query: str, rest: str) -> str:
        """A search for the first fact missing from the analysis, else for its last one, in a wording that differs from the query's."""
        solution = solve(query, self._reader.facts(rest))
        again = [wording for fact in solution.used[-1:] for wording in untried(searches(fact.relation, fact.name), query)]
        return next(iter([*solution.next_searches(query), *again]), query)

    def _answer(self, query: str, rest: str) -> str:
        return solve(query, [*self._reader.facts(rest), *self._reader.memory]).guess
