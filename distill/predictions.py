"""Look up the predictions of finished infer runs by question. Only the file offset of each prediction is kept in memory."""

from collections.abc import Sequence
from pathlib import Path

from pydantic_core import from_json

from distill.teacher.teacher import RejectedRow
from infer.samples import question_of
from refinery.contract.records import Question, parse_record
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RunDirError
from refinery.runtime.run_dir import RunDir, read_run


class Predictions:
    """The predictions of some finished infer runs. Raises RunDirError for a folder that is not one."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._places: dict[str, dict[Path, list[int]]] = {}
        for run in runs:
            if read_run(run)["stage"] != "infer" or not RunDir(run).finished:
                raise RunDirError(f"{run}: is not a finished infer run. Name the output_dir of a finished one.")
            self._index(run / PREDICTIONS_FILE, samples=(read_run(run).get("recipe") or {}).get("samples", 1))

    def of(self, question: Question) -> list[Prediction]:
        """Each run's prediction for a question, or its samples, in the order of the runs. Raises RejectedRow if no run has one."""
        return [prediction for predictions in self.by_run(question) for prediction in predictions]

    def by_run(self, question: Question) -> list[list[Prediction]]:
        """The predictions of `of`, those of each run together."""
        if question.id not in self._places:
            raise RejectedRow("not_decoded", f"no run has an answer to question {question.id}")
        return [[_read(path, offset) for offset in offsets] for path, offsets in self._places[question.id].items()]

    def _index(self, path: Path, *, samples: int) -> None:
        with path.open("rb") as file:
            offset = 0
            for line in file:
                values = from_json(line)
                if values.get("failed") is None:
                    question_id = values["question_id"] if samples == 1 else question_of(values["question_id"])
                    self._places.setdefault(question_id, {}).setdefault(path, []).append(offset)
                offset += len(line)


def _read(path: Path, offset: int) -> Prediction:
    with path.open("rb") as file:
        file.seek(offset)
        return parse_record(file.readline(), Prediction, where=str(path))
