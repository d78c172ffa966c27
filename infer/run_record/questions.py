"""The questions of a run. Each iteration reads them again, unless they are few, so memory does not grow with their number."""

from array import array
from collections.abc import Iterator

from infer.recipe import InferRecipe
from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import check_ids
from refinery.runtime.files.duplicate_ids import repeated
from refinery.runtime.files.external_sort import SortedLines
from refinery.runtime.files.fingerprint import id_number, text_fingerprint

_HELD_CHARACTERS = 4 << 20


class AskedQuestions:
    """A recipe's questions, in order. Creating this reads them once to count them, and raises RecordError for faulty rows.

    `fingerprint` covers all fields of the questions, in any order.
    """

    def __init__(self, recipe: InferRecipe) -> None:
        self._recipe = recipe
        self._held: list[Question] | None = []
        self._count = 0
        lines, ids, characters = SortedLines(), array("Q"), 0
        for question in recipe.each_question():
            self._count += 1
            ids.append(id_number(question.id))
            lines.add(line := question.model_dump_json())
            characters += len(line)
            if characters > _HELD_CHARACTERS:
                self._held = None
            elif self._held is not None:
                self._held.append(question)
        self._check(ids)
        self.fingerprint = text_fingerprint(lines)

    def _check(self, ids: "array[int]") -> None:
        if self._recipe.shard and not ids:
            raise RecordError(f"{self._recipe.questions[0]}: no question belongs to shard {self._recipe.shard}. Use fewer shards.")
        twice = repeated(ids)
        again = next(question.id for question in self if id_number(question.id) in twice) if twice else None
        check_ids(self._recipe.questions, self._count, again)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Question]:
        return iter(self._held) if self._held is not None else self._recipe.each_question()
