"""Worked examples from a user's own labeled rows: which of them a row's prompt is shown with, as turns before it.

Examples are shown as the task's own prompts with the replies that the labels stand for, so nothing in them can be taken for instructions
that another place of the prompt would not allow too. The same rows always give the same examples.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from distill.label_task import LabeledRows, Pair
from distill.recipe import DistillRecipe
from refinery.contract.records import Passage, read_records, write_records
from refinery.questions.base import iter_questions
from refinery.similar_texts import SimilarTexts, words_of
from refinery.text import normalize_answer

Turns = Callable[[Sequence[Sequence[Pair]]], Iterable[Pair]]
_COPY = Path("examples") / "rows.jsonl"  # the copy's place in a run
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class _Labeled:
    """What rows are about, which is their question by default, with the rows, and the prompts and replies that show them."""

    texts: Sequence[str]
    ids: frozenset[str]
    rows: list[Any]
    pairs: list[Pair]


class Examples:
    """The labeled rows that can be shown, and which of them are: `count`, `similar` to a row or the `first`."""

    def __init__(self, labeled: Sequence[_Labeled], count: int, choose: str, turns: Turns) -> None:
        self._labeled, self._count, self._turns = labeled, count, turns
        self._near: SimilarTexts[int] = SimilarTexts()
        self._same: dict[str, set[int]] = {}
        for number, one in enumerate(labeled):
            for text in one.texts:
                self._near.add(words_of(text), number)
            for key in (*map(normalize_answer, one.texts), *map(_id_key, one.ids)):
                self._same.setdefault(key, set()).add(number)
        self._search = _bm25(["\n".join(one.texts) for one in labeled]) if choose == "similar" else None
        self._pairs = lru_cache(maxsize=1024)(self._chosen)

    def __call__(self, row_id: str, *texts: str) -> tuple[Pair, ...]:
        """The turns to show before a prompt about a question or passages: never those, and nothing with their id or nearly their words.

        The most similar example comes last, next to the prompt; the first ones come in the order of their file.
        """
        return self._pairs(row_id, *texts)

    def _chosen(self, row_id: str, *texts: str) -> tuple[Pair, ...]:
        barred = set[int]().union(*(self._same.get(key, ()) for key in (_id_key(row_id), *map(normalize_answer, texts))))
        barred.update(number for text in texts for number in self._near.similar(words_of(text)))
        chosen = list(
            islice((number for number in self._ranked("\n".join(texts), self._count + len(barred)) if number not in barred), self._count)
        )
        shown = reversed(chosen) if self._search else chosen
        return tuple(self._turns([self._labeled[number].pairs for number in shown]))

    def _ranked(self, text: str, most: int) -> Iterable[int]:
        """The numbers of at least `most` questions, if there are so many: the most similar first, and then in order."""
        found = [int(hit.passage.id) for hit in self._search.search_all([(text, most)])[0]] if self._search else []
        return dict.fromkeys([*found, *range(min(len(self._labeled), most))])

    @property
    def tokens(self) -> tuple[float, float]:
        """About the fewest and the most tokens that the examples of one prompt take."""
        sizes = [size for one in self._labeled for size in _sizes(self._turns([one.pairs]))]
        shown = min(self._count, len(self._labeled))
        return shown * min(sizes), shown * max(sizes)

    def keep(self, run: Path) -> None:
        """Write the rows into the run in `run`, in the place of an earlier copy."""
        (run / _COPY).parent.mkdir(exist_ok=True)
        write_records(run / _COPY, [row for one in self._labeled for row in one.rows])

    def drop(self, run: Path) -> None:
        """Remove the copy from a run that came to nothing."""
        shutil.rmtree((run / _COPY).parent, ignore_errors=True)


def _sizes(pairs: Iterable[Pair]) -> Iterable[float]:
    """About how many tokens each prompt's pairs have."""
    sizes: Counter[str] = Counter()
    for prompt, reply in pairs:
        sizes[prompt.name] += len(prompt) + len(reply)
    return [size / _CHARACTERS_PER_TOKEN for size in sizes.values()]


def examples_of(recipe: DistillRecipe) -> Examples | None:
    """The examples of a recipe, or those that its run has kept if their file has gone.

    Raises RecipeError if the task shows none or no row is left, and RecordError for a file that cannot be read.
    """
    if recipe.examples is None:
        return None
    kept = kept_examples(recipe, recipe.output_dir) if not recipe.examples.rows.exists() else None
    return kept or _of_rows(recipe, recipe.examples.rows)


def kept_examples(recipe: DistillRecipe, run: Path) -> Examples | None:
    """The examples that the run in `run` has kept."""
    return _of_rows(recipe, run / _COPY, is_kept=True) if recipe.examples and (run / _COPY).exists() else None


def copy_examples(run: Path, to: Path) -> None:
    """Copy what a run has kept into another one."""
    if (run / _COPY).exists():
        shutil.copytree((run / _COPY).parent, (to / _COPY).parent)


def _of_rows(recipe: DistillRecipe, path: Path, *, is_kept: bool = False) -> Examples:
    """The examples of a file; of a run's copy, everything is shown, because only what may be shown was kept."""
    config, task, options = recipe.examples, recipe.label_task, recipe.task_options()
    assert config is not None
    if task.examples is None or "teacher" not in task.needs(options):
        raise recipe.fault("examples", f"task '{recipe.task}' shows none with these options. Leave it out.")
    if getattr(options, "examples", "zero") == "few":
        raise recipe.fault("examples", "options.examples shows others. Set that to zero, or leave this out.")
    if getattr(options, "rationale", False):
        raise recipe.fault("examples", "their replies have no rationale. Set options.rationale to false, or leave this out.")
    rows: Sequence[Any] = task.examples.read(path) if task.examples.read else read_records(path, task.examples.record)
    labeled = list(_labeled(rows if is_kept else _usable(rows, recipe, task.examples), task.examples, options))
    if not labeled:
        raise recipe.fault("examples.rows", f"{path} has no row to show that is not in evaluation_sets. Name another file.")
    return Examples(labeled, config.count, config.choose, task.examples.turns)


def _usable(rows: Sequence[Any], recipe: DistillRecipe, shown_as: LabeledRows) -> Iterator[Any]:
    """The rows that may be shown, whose questions are in no evaluation set."""
    held_out = _held_out(recipe)
    for row in shown_as.usable(rows, recipe):
        if not any(True for _ in held_out.similar(words_of(shown_as.key(row)[1]))):
            yield row


def _labeled(rows: Iterable[Any], shown_as: LabeledRows, options: Any) -> Iterator[_Labeled]:
    by_text: dict[str, list[Any]] = {}
    for row in rows:
        if text := normalize_answer("\n".join(shown_as.about(row))):
            by_text.setdefault(text, []).append(row)
    for alike in by_text.values():
        if shown := shown_as.pairs(alike, options):
            yield _Labeled(shown_as.about(alike[0]), frozenset(shown_as.key(row)[0] for row in alike), alike, shown)


def _held_out(recipe: DistillRecipe) -> SimilarTexts[None]:
    """The words of the questions that must not be shown."""
    held_out: SimilarTexts[None] = SimilarTexts()
    for question in iter_questions(recipe.evaluation_sets, reader=recipe.reader):
        held_out.add(words_of(question.text), None)
    return held_out


def _id_key(question_id: str) -> str:
    """An id as a key that is no normalized text."""
    return f"ID {question_id}"


def _bm25(texts: Sequence[str]) -> Any:
    from refinery.retrievers.bm25 import Bm25

    return Bm25([Passage(id=str(number), title="", text=text) for number, text in enumerate(texts)])
