"""Write a run's predictions and the questions that it keeps, and collect facts about all of them on the way."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from infer.evaluation.answers import Answers
from infer.evaluation.evaluate import TotalCost
from infer.evaluation.run_inputs import TokenTexts, with_found
from infer.evaluation.scores import Survey
from refinery.contract.records import Question
from refinery.contract.trace import PREDICTIONS_FILE, QUESTIONS_FILE, Prediction, prediction_line
from refinery.reporting.causes import Causes
from refinery.runtime.files.jsonl import LineWriter


class AnswerFiles:
    """Two files in the folder of a run, which get their names when the block ends, and not after an error.

    `failed` counts failed questions by reason, `first_failed` is the first of them, `causes` has the causes of failed questions and faulty
    replies, `cost` is the total of all questions, `tokens` are those in the traces, and `survey` has the facts for scoring.
    """

    def __init__(self, run: Path) -> None:
        self._predictions, self._questions = LineWriter(run / PREDICTIONS_FILE), LineWriter(run / QUESTIONS_FILE)
        self.failed: Counter[str] = Counter()
        self.first_failed: Prediction | None = None
        self.causes = {"failed": Causes(), "faults": Causes()}
        self.cost, self.tokens, self.survey = TotalCost(), TokenTexts(), Survey()

    def __enter__(self) -> Self:
        self._predictions.__enter__()
        self._questions.__enter__()
        return self

    @property
    def count(self) -> int:
        """The number of questions so far."""
        return self._questions.count

    def add(self, question: Question, prediction: Prediction | None) -> None:
        """Write a question with its prediction, if it has one."""
        self._questions.write(with_found(question, prediction).model_dump_json(exclude_none=True))
        self.survey.add(question, prediction)
        if prediction is None:
            return
        self._predictions.write(prediction_line(prediction))
        self.cost.add(prediction)
        self.tokens.add(prediction)
        if prediction.failed is not None:
            reason, _, detail = prediction.failed.partition(": ")
            self.failed[reason] += 1
            self.causes["failed"].add(reason, detail)
            self.first_failed = self.first_failed or prediction
        for step in prediction.trace:
            if step.name == "fault":
                reason, _, detail = (step.text or "").partition(": ")
                self.causes["faults"].add(reason, detail)

    def cause_report(self) -> dict[str, Any]:
        """For `metrics.json`: the most frequent cause of each reason for failed questions, and for faults of replies."""
        return {name: causes.report() for name, causes in self.causes.items()}

    def answers(self, questions: Iterable[Question]) -> Answers:
        """The predictions written so far, with `questions`, which must be those that were added."""
        self._predictions.flush()
        return Answers(questions, self._predictions.partial)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._predictions.__exit__(kind, error, traceback)
        self._questions.__exit__(kind, error, traceback)
