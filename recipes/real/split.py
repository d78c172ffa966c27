"""Choose which rows of the released datasets train, validate and test, and say what these parts still share.

    python -m recipes.real.split --source FOLDER --output recipes/real/data/split.tsv

FOLDER is as for `rows.py`. Its files `dev` and `train` have whole rows; the rows of other files only add their paragraphs to the corpus.
Rows that share a supporting paragraph form a group, and a group is in one part: where `recipes/real/data` has one of its rows, in that
part (testing first), else by a hash. No draw depends on the order of the rows.
"""

import argparse
import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from recipes.real.rows import ENDINGS, SAMPLE, Listed, files_of
from refinery.contract.records import Passage, Question
from refinery.questions.base import read_questions
from refinery.repeated_questions import AskedQuestions
from refinery.runtime.files.fingerprint import sha256
from refinery.runtime.run.command import guarded
from refinery.similar_texts import SimilarTexts
from refinery.text import normalize_answer

SHARES = {"test": 0.28, "validation": 0.05}  # of the groups without a row of the sample
WHOLE = ("dev", "train", "validation", "test")
_BEGINNING = 80  # letters: releases of one article differ later in the paragraph


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m recipes.real.split", description="Choose the study's parts.")
    parser.add_argument("--source", type=Path, required=True, help="folder of the released datasets")
    parser.add_argument("--output", type=Path, required=True, help="the list to write")
    return guarded(lambda: print(choose(**vars(parser.parse_args(argv)))), traceback=False)


def choose(source: Path, output: Path) -> str:
    """Write the list and return a report of it."""
    fixed = {question.id: path.stem for path, question in _questions(SAMPLE)}
    asked = dict.fromkeys(fixed) | {question.id: None for path, question in _questions(source) if path.stem in WHOLE}
    questions = {question.id: question for folder in (SAMPLE, source) for _, question in _questions(folder)}
    groups = groups_of([questions[name] for name in asked])
    listed = [_listed(question, number, part_of(group, fixed)) for number, group in enumerate(groups) for question in group]
    listed += [_listed(question, -1, "corpus") for name, question in questions.items() if name not in asked]
    write_split(output, listed)
    return report({row: questions[row.id] for row in listed if row.split != "corpus"})


def _questions(folder: Path) -> Iterator[tuple[Path, Question]]:
    for path in (path for dataset in ENDINGS for path in files_of(dataset, folder)):
        yield from ((path, question) for question in read_questions([path], reader="by_folder"))


def _listed(question: Question, group: int, part: str) -> Listed:
    return Listed(part, str(question.dataset), question.id, group)


def groups_of(questions: Sequence[Question]) -> list[list[Question]]:
    """Questions that share a supporting paragraph, directly or through others, in the order of their least id."""
    parent = {question.id: question.id for question in questions}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    owner: dict[tuple[str, str], str] = {}
    for question in questions:
        for key in support_keys(question):
            parent[root(question.id)] = root(owner.setdefault(key, question.id))
    groups: dict[str, list[Question]] = defaultdict(list)
    for question in sorted(questions, key=lambda question: question.id):
        groups[root(question.id)].append(question)
    return list(groups.values())


def support_keys(question: Question) -> set[tuple[str, str]]:
    """What two questions share if they share a supporting paragraph: its title and beginning, or the title alone if it is an introduction.

    HotpotQA and 2WikiMultihopQA have one paragraph of each article, its introduction, but of different years.
    """
    keys = {(normalize_answer(passage.title), normalize_answer(passage.text)[:_BEGINNING]) for passage in supporting(question)}
    return keys if question.dataset == "musique" else keys | {(title, "introduction") for title, _ in keys}


def supporting(question: Question) -> list[Passage]:
    """The supporting passages."""
    return [passage for passage in question.passages or [] if passage.id in (question.supporting or ())]


def part_of(group: Sequence[Question], fixed: dict[str, str]) -> str:
    """The part of a group: that of its rows in the sample, or else by a hash of its least id."""
    held = {fixed[question.id] for question in group if question.id in fixed}
    if held:
        return next(part for part in ("test", "validation", "train") if part in held)
    draw = int.from_bytes(sha256(min(question.id for question in group).encode())[:8]) / 2**64
    return "test" if draw < SHARES["test"] else "validation" if draw < sum(SHARES.values()) else "train"


def write_split(path: Path, listed: Iterable[Listed]) -> None:
    """Write the list, in the order of datasets and ids."""
    rows = sorted(listed, key=lambda row: (row.dataset, row.id))
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(Listed._fields)
        table.writerows(rows)


def report(questions: dict[Listed, Question]) -> str:
    """Rows of each part, and what validation and test questions nearly share with training questions."""
    parts: dict[str, list[Question]] = defaultdict(list)
    for row, question in questions.items():
        parts[row.split].append(question)
    lines = [f"{part}: {len(rows)} {dict(Counter(str(one.dataset) for one in rows))}" for part, rows in parts.items()]
    for part in ("validation", "test"):
        lines += [f"{part}, {what}: {len(ids)} {' '.join(ids)}" for what, ids in shared_with(parts["train"], parts[part]).items()]
    return "\n".join(lines)


def shared_with(trained: Sequence[Question], held_out: Sequence[Question]) -> dict[str, list[str]]:
    """Ids of the held-out questions that share something with a training question."""
    asked, paragraphs = AskedQuestions[str](), SimilarTexts[str]()
    for question in trained:
        asked.add(question.text, question.id)
        for passage in supporting(question):
            paragraphs.add(_words(passage), question.id)
    keys = set().union(*map(support_keys, trained))
    return {
        "same supporting paragraph": [one.id for one in held_out if support_keys(one) & keys],
        "same question": [one.id for one in held_out if asked.same(one.text)],
        "nearly the same question": [one.id for one in held_out if asked.nearly_the_same(one.text)],
        "nearly the same supporting paragraph": [
            one.id for one in held_out if any(True for passage in supporting(one) for _ in paragraphs.similar(_words(passage)))
        ],
    }


def _words(passage: Passage) -> frozenset[str]:
    return frozenset(normalize_answer(passage.text).split())


if __name__ == "__main__":
    sys.exit(main())
