"""A model that knows the annotations of questions and replies to every module's prompt with the gold."""

import json
from collections.abc import Sequence

from infer.modules.kinds.extraction import is_positive
from infer.modules.kinds.gold import answers_of, gold_steps, known_parts, supporting_of, told
from refinery.contract.records import Passage, Question


class Gold:
    """What the annotations say, by the texts that prompts show."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = {question.text: question for question in questions}
        self.answers: dict[str, str] = {}
        self.supporting: dict[str, set[str]] = {}
        for question in questions:
            by_id = {passage.id: passage.text for passage in question.passages or []}
            for step, part in known_parts(question):
                self.answers[part.text] = (answers_of(question, step) or [""])[0]
                self.supporting.setdefault(part.text, set()).update(by_id[name] for name in supporting_of(question, step) if name in by_id)

    def __call__(self, prompt: str) -> str:
        """The gold reply to a prompt."""
        for sign, reply in self._replies.items():
            if sign in prompt:
                return reply(self, prompt)
        raise AssertionError(f"no reply is known for: {prompt}")

    def _main(self, prompt: str) -> str:
        question, known = self.questions[line(prompt, "Question")], line(prompt, "Information")
        for count in range(len(question.decomposition or []) + 1):
            if (information := told(question, count)) is not None and ("; ".join(information) or "(none)") == known:
                return json.dumps(self._main_reply(question, count))
        raise AssertionError(f"not the first annotated answers: {known}")

    def _main_reply(self, question: Question, count: int) -> dict[str, str]:
        steps = gold_steps(question)
        if count == len(steps):
            return {"answer": question.answers[0], "explanation": "", "missing_information": ""}
        return {"answer": "unanswerable", "explanation": "", "missing_information": getattr(steps[count], "text", "something")}

    def _queries(self, prompt: str) -> str:
        return json.dumps({"queries": [line(prompt, "Missing Information")]})

    def _leaf(self, prompt: str) -> str:
        question = next(question for text, question in self.questions.items() if line(prompt, "Question").startswith(text))
        shown = [row.partition(") ")[2] for row in prompt.splitlines() if row.startswith("Passage ")]
        numbers = [number for number, text in enumerate(shown, 1) if is_positive(Passage(id="", text=text), question)]
        return json.dumps({"useful_information": [{"info": f"Fact {number}", "support_passages": [number]} for number in numbers]})

    def _decomposition(self, prompt: str) -> str:
        steps = self.questions[line(prompt, "Question")].decomposition or []
        return "".join(f"{number}. {step.text}\n" for number, step in enumerate(steps, 1))

    def _relevance(self, prompt: str) -> str:
        return "relevant" if line(prompt, "Text") in self.supporting[line(prompt, "Question")] else "irrelevant"

    def _relevance_list(self, prompt: str) -> str:
        wanted = self.supporting[line(prompt, "Question")]
        shown = [row for row in prompt.splitlines() if row.startswith("[")]
        return " ".join(row.partition(" ")[0] for row in shown if any(row.endswith(f": {text}") for text in wanted)) or "No."

    def _kept(self, prompt: str) -> str:
        wanted = self.supporting[line(prompt, "Query")]
        shown = [row for row in prompt.splitlines() if row.startswith("Knowledge ")]
        said = ["keep" if any(row.endswith(text) for text in wanted) else "remove" for row in shown]
        return "\n".join(f"Knowledge {number}: {word}" for number, word in enumerate(said, 1))

    def _sub_query(self, prompt: str) -> str:
        steps = gold_steps(question := self.questions[line(prompt, "Query")])
        known = [count for count in range(len(steps)) if "; ".join(told(question, count) or []) in prompt]
        return steps[known[-1]].text

    def _answer(self, prompt: str) -> str:
        return self.answers[line(prompt, "Question")]

    def _knowledge(self, prompt: str) -> str:
        return f"It is well known that it is {self._answer(prompt)}."

    _replies = {
        "New queries:": _queries,
        '"unanswerable"': _main,
        "distil useful information": _leaf,
        "Does the premise entail": lambda self, prompt: '{"entails": true}',
        "Generate relevant information": _knowledge,
        "Sub-query:": _sub_query,
        "each piece of knowledge": _kept,
        "Sub-questions:": _decomposition,
        "Simpler questions:": _decomposition,
        "Answer relevant or irrelevant": _relevance,
        "Output:": _relevance_list,
        "Answer know if you know": lambda self, prompt: "know",
        "Answer:": _answer,
    }


def line(prompt: str, name: str) -> str:
    """What follows `name: ` on the last line that begins with it."""
    return [row for row in prompt.splitlines() if row.startswith(f"{name}: ")][-1].removeprefix(f"{name}: ")
