"""The page of train runs: settings and scores, curves, the first training rows, and each model's answers for the held-out rows."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from refinery.errors import RunDirError
from refinery.reporting.pages.content import Cell, Chart, Detail, Example, Row, RunDetail
from refinery.reporting.pages.facts import title_of
from refinery.reporting.pages.write import write_page
from train.rows.readable_rows import read_first_rows
from train.trainers.held_out_answers import HeldOutAnswer, read_held_out
from train.viewing.card import MOST_LABELS, run_card
from train.viewing.plot import curves

_WORDS = {"right": "right", "wrong": "wrong", "view": "view", "rows": "held-out rows", "why": "confused"}
_Key = tuple[str, str, str, int]  # a question, the text asked about it, the gold answer, and the number among equal ones


def write(paths: Sequence[Path], output: Path, *, limit: int | None, project: str = "") -> int:
    """Write the page of the runs in `paths` with at most `limit` held-out rows. Returns their number.

    A run in training has a page from its first checkpoint on. Raises RunDirError for anything but a train run.
    """
    answers = [read_held_out(path) for path in paths]
    charts = _charts(paths)
    rows = list(_rows(answers))[:limit]
    return write_page(
        output,
        title=title_of(paths),
        runs=[{"name": path.name, "views": ["answer"], "own": 0} for path in paths],
        rows=rows,
        total=len(rows),
        columns=["probability"],
        words=_WORDS,
        note=_note(answers),
        about={
            "cards": [run_card(path, held_out) for path, held_out in zip(paths, answers, strict=True)],
            "charts": charts,
            "examples": [example for path in paths for example in _examples(path, several=len(paths) > 1)],
        },
        project=project,
    )


def _note(answers: Sequence[Sequence[HeldOutAnswer]]) -> str:
    if not any(answers):
        return "No held-out answers are stored: the recipe has no `validation`, training has not ended, or an older version made the run."
    return "The list has the first held-out rows that the finished checkpoint answered."


def _charts(paths: Sequence[Path]) -> list[Chart]:
    try:
        found = curves(paths)
    except RunDirError:  # before the first checkpoint, or of a run that was copied without its history
        return []
    return [
        {"name": some.title, "across": "step", "lines": [{"name": name, "points": points} for name, points in some.lines.items()]}
        for some in found
    ]


def _examples(path: Path, *, several: bool) -> list[Example]:
    def name(number: int, row: Any) -> str:
        return f"{f'{path.name}, ' if several else ''}row {number}, question {row.question_id}: {row.tokens:,} tokens"

    return [{"name": name(number, row), "parts": [*row.parts]} for number, row in enumerate(read_first_rows(path), 1)]


def _rows(answers: Sequence[Sequence[HeldOutAnswer]]) -> Iterator[tuple[Row, Detail]]:
    """A row for each held-out row of any run; runs over the same files share rows."""
    by_run = [_keyed(given) for given in answers]
    keys = list(dict.fromkeys(key for given in by_run for key in given))
    are_labels = len({gold for _, _, gold, _ in keys}) <= MOST_LABELS
    of_question = Counter(question_id for question_id, *_ in keys)
    seen: dict[str, int] = defaultdict(int)
    for key in keys:
        shown = [given.get(key) for given in by_run]
        first = next(answer for answer in shown if answer)
        seen[first.question_id] += 1
        number = f" #{seen[first.question_id]}" if of_question[first.question_id] > 1 else ""
        row: Row = {
            "id": f"{first.question_id}{number}",
            "text": first.question,
            "gold": first.gold,
            "groups": [],
            "cells": [[_cell(answer, are_labels=are_labels)] if answer else None for answer in shown],
        }
        yield row, {"facts": [("gold", first.gold)], "runs": [_detail(answer) if answer else None for answer in shown]}


def _keyed(answers: Iterable[HeldOutAnswer]) -> dict[_Key, HeldOutAnswer]:
    seen: Counter[tuple[str, str, str]] = Counter()
    keyed: dict[_Key, HeldOutAnswer] = {}
    for answer in answers:
        asked = (answer.question_id, answer.read or answer.question, answer.gold)
        keyed[*asked, seen[asked]] = answer
        seen[asked] += 1
    return keyed


def _cell(answer: HeldOutAnswer, *, are_labels: bool) -> Cell:
    cell: Cell = {"text": answer.predicted, "score": float(answer.right), "numbers": [answer.probability]}
    if are_labels and not answer.right:
        cell["why"] = f"{answer.gold} → {answer.predicted}"
    return cell


def _detail(answer: HeldOutAnswer) -> RunDetail:
    probability = [("probability", f"{answer.probability:.3f}")] if answer.probability is not None else []
    return {"facts": probability, "text": answer.read} if answer.read else {"facts": probability}
