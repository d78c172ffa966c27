"""Look up the predictions of finished infer runs by question. Only the file offset of each prediction is kept in memory."""

from collections.abc import Sequence
from pathlib import Path

from pydantic_core import from_json

from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Question, parse_record
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RunDirError
from refinery.runtime.run_dir import RunDir, read_run


class Predictions:
    """The predictions of some finished infer runs. Raises RunDirError for a folder that is not one."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._places: dict[str, list[tuple[Path, int]]] = {}
        for run in runs:
            if read_run(run)["stage"] != "infer" or not RunDir(run).finished:
                raise RunDirError(f"{run}: is not a finished infer run. Name the output_dir of a finished one.")
            self._index(run / PREDICTIONS_FILE)

    def of(self, question: Question) -> list[Prediction]:
        """Each run's prediction for a question, in the order of the runs. Raises RejectedRow if no run has one."""
        if question.id not in self._places:
            raise RejectedRow("not_decoded", f"no run has an answer to question {question.id}")
        return [_read(path, offset) for path, offset in self._places[question.id]]

    def _index(self, path: Path) -> None:
        with path.open("rb") as file:
            offset = 0
            for line in file:
                values = from_json(line)
                if values.get("failed") is None:
                    self._places.setdefault(values["question_id"], []).append((path, offset))
                offset += len(line)


def _read(path: Path, offset: int) -> Prediction:
    with path.open("rb") as file:
        file.seek(offset)
        return parse_record(file.readline(), Prediction, where=str(path))
