"""Replies of the demo's teacher to the prompts of the methods that re-thinking and MIGRES are compared with.

All have the same form: the facts found so far, each in its sentence, and then the answer, the next search, or "unknown".
"""

import re

from refinery.contract.sub_questions import fill_references, render_sub_questions
from refinery.demo.teacher.facts import UNKNOWN, Solution, solve, solve_parts, sub_questions
from refinery.demo.teacher.prompt_form import SLOT, PromptForm, shown_passages
from refinery.demo.teacher.reader import Reader, Replies

_SUB_ANSWERS = re.compile(r"^Sub-question: (.*)\nSub-answer: (.*)$", re.MULTILINE)
_SOLVED = re.compile(r"^Question: (.*)\nThe answer is (.*)$", re.MULTILINE)
_THOUGHTS, _SEARCHED, _FOLLOW_UP = "Thoughts: ", re.compile(r"Search\[(.*)\]"), re.compile(r"^Follow up: (.*)$", re.MULTILINE)


class BaselineReplies:
    """`by_form` holds the replies; each reads the question and the rest of the prompt."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        cited = [(SLOT, SLOT, SLOT)]  # alce_answer shows passages as tuples
        self.by_form: Replies = [
            (PromptForm("answer_direct"), self._answer),
            (PromptForm("closed_book_few"), self._answer),
            (PromptForm("answer_with_passages"), self._answer),
            (PromptForm("answer_from_sub_answers"), self._from_sub_answers),
            (PromptForm("chain_of_thought"), self._reasoning),
            (PromptForm("iter_retgen"), self._reasoning),
            (PromptForm("self_criticism_problems"), self._problems),
            (PromptForm("self_criticism_improve"), self._reasoning),
            (PromptForm("plan_and_solve"), self._plan_and_solution),
            (PromptForm("chain_of_note"), self._notes),
            (PromptForm("alce_answer", passages=cited), self._cited),
            (PromptForm("ircot_reason"), self._next_thought),
            (PromptForm("least_to_most_decompose"), lambda question, _: render_sub_questions(sub_questions(question)).lstrip("\n")),
            (PromptForm("least_to_most_answer"), self._last_of_several),
            (PromptForm("react", must_answer=False), self._thought_and_action),
            (PromptForm("react", must_answer=True), lambda question, rest: f"{self._answer(question, rest)}]"),
        ]
        for examples in ("few", "zero"):  # few first: the pattern of zero would read the examples as a question and the text after it
            for steps in ([], [(SLOT, [{"title": SLOT, "text": SLOT}])]):
                form = {"examples": examples, "steps": steps}
                self.by_form += [
                    (PromptForm("self_ask", **form, must_answer=False), self._follow_up),
                    (PromptForm("self_ask", **form, must_answer=True), self._answer),
                ]

    def _solve(self, question: str, rest: str) -> Solution:
        """The solution from the facts that the prompt shows, and from memory."""
        return solve(question, [*self._reader.facts(rest), *self._reader.memory])

    def _answer(self, question: str, rest: str) -> str:
        return self._solve(question, rest).guess

    def _reasoning(self, question: str, rest: str) -> str:
        return _reasoned(self._solve(question, rest))

    def _from_sub_answers(self, question: str, rest: str) -> str:
        return solve(question, solve_parts(_SUB_ANSWERS.findall(rest))).guess

    def _last_of_several(self, question: str, rest: str) -> str:
        """The reply to a question that refers to earlier ones, with their answers filled in."""
        solved = _SOLVED.findall(rest)
        asked = fill_references(question, [answer for _, answer in solved])
        facts = [*self._reader.facts(rest), *solve_parts(solved), *self._reader.memory]
        return _reasoned(solve(asked, facts))

    def _plan_and_solution(self, question: str, rest: str) -> str:
        return f"Plan: {' '.join(sub_questions(question))}\n{self._reasoning(question, rest)}"

    def _problems(self, question: str, rest: str) -> str:
        """The faults of an earlier answer."""
        solution = self._solve(question, rest)
        if solution.answer is None:
            return " ".join(f"Missing: {search[0]}" for search in solution.missing)
        right = _conclusion(solution) in rest
        return "There are no problems." if right else f"The answer does not follow. {' '.join(solution.statements)}"

    def _notes(self, question: str, rest: str) -> str:
        """A line for each passage, and the answer."""
        solution = self._solve(question, rest)
        notes = list[str]()
        for shown in shown_passages(rest):
            useful = [fact.statement for fact in self._reader.passage(shown.title, shown.text) if fact in solution.used]
            notes.append(f"Passage {shown.number}: {' '.join(useful) or 'irrelevant.'}")
        return "\n".join([*notes, _conclusion(solution)])

    def _cited(self, question: str, rest: str) -> str:
        """Each fact with the number of the passage that states it."""
        solution = self._solve(question, rest)
        numbers = {fact: shown.number for shown in shown_passages(rest) for fact in self._reader.passage(shown.title, shown.text)}
        cited = [f"{fact.statement.removesuffix('.')} [{numbers[fact]}]." for fact in solution.used if fact in numbers]
        return " ".join([*cited, _conclusion(solution)])

    def _next_thought(self, question: str, rest: str) -> str:
        """The first fact that the thoughts do not contain yet, or the answer, or the next search."""
        solution, thoughts = self._solve(question, rest), rest.rpartition(_THOUGHTS)[2]
        new = [statement for statement in solution.statements if statement not in thoughts]
        if not solution.answer:
            new += solution.next_searches(thoughts)
        return new[0] if new else f"So the answer is: {solution.guess}."

    def _thought_and_action(self, question: str, rest: str) -> str:
        solution = self._solve(question, rest)
        searches = solution.next_searches(" ".join(_SEARCHED.findall(rest)))
        action = f"Search[{searches[0]}]" if searches else f"Finish[{solution.guess}]"
        return f"{' '.join(solution.statements) or 'Nothing is known yet.'}\nAction: {action}"

    def _follow_up(self, question: str, rest: str) -> str:
        """The intermediate answer to the last follow-up question, and the next one or the end."""
        solution, asked = self._solve(question, rest), _FOLLOW_UP.findall(rest)
        searches = solution.next_searches(" ".join(asked))
        said = " ".join(self._solve(asked[-1], rest).statements) or UNKNOWN if asked else "Yes." if searches else "No."
        return f"{said}\n" + (f"Follow up: {searches[0]}" if searches else f"So the final answer is: {solution.guess}")


def _reasoned(solution: Solution) -> str:
    """The facts, the searches that are still missing, and the answer."""
    return " ".join([*solution.statements, *(search[0] for search in solution.missing), _conclusion(solution)])


def _conclusion(solution: Solution) -> str:
    return f"The answer is {solution.guess}."
