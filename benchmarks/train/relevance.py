"""A trained relevance judge compared with two untrained scores, on questions that none of them has seen.

    python -m benchmarks.train.relevance split LABELS.jsonl ... --output FOLDER
    refinery train recipes/ra_isf/train/relevance_minilm.yaml
    python -m benchmarks.train.relevance table FOLDER --run RUN --encoder ENCODER

`split` distributes whole questions, with all their sub-questions, to train.jsonl (7 in 10), validation.jsonl (1) and test.jsonl (2).
`table` scores the run's checkpoint, BM25 and the cosine of the untrained encoder's mean embeddings on test.jsonl. The latter two use the
threshold with the best F1 on train.jsonl; the trained judge uses probability 0.5, the default of RA-ISF's decoder, and the threshold with
the best F1 on validation.jsonl, since it has seen its training rows.
"""

import argparse
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refinery.contract.plain_text import plain_text_tokenizer
from refinery.contract.records import RelevanceLabel, read_records, write_records
from refinery.metrics.classification import accuracy, auc, label_f1
from refinery.reporting.markdown import table
from refinery.runtime.run.command import guarded

_SPLITS = {"train": 7, "validation": 1, "test": 2}
_BATCH = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.train.relevance", description="Compare relevance judges on unseen questions."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    split = actions.add_parser("split", help="split labeled questions into train, validation and test")
    split.add_argument("labels", type=Path, nargs="+", help="JSON Lines files that `task: relevance` wrote")
    split.add_argument("--output", type=Path, required=True, help="folder of the three files")
    split.add_argument("--seed", type=int, default=42)
    table = actions.add_parser("table", help="score the judges on test.jsonl and print a table")
    table.add_argument("folder", type=Path, help="where `split` wrote")
    table.add_argument("--run", type=Path, required=True, help="output_dir of the train run")
    table.add_argument("--encoder", required=True, help="the encoder that training started from")
    arguments = parser.parse_args(argv)
    action = {"split": _split, "table": _table}[arguments.action]
    return guarded(lambda: action(arguments), traceback=False)


def split_by_question(records: Sequence[RelevanceLabel], seed: int) -> dict[str, list[RelevanceLabel]]:
    """The records of each split, in an order of questions that mixes the datasets; a question and its sub-questions share an id."""
    ids = sorted({record.question_id for record in records})
    random.Random(seed).shuffle(ids)
    place = {question_id: number for number, question_id in enumerate(ids)}
    total, start = sum(_SPLITS.values()), 0
    split_of: dict[str, str] = {}
    for name, share in _SPLITS.items():
        stop = start + share
        split_of |= dict.fromkeys(ids[len(ids) * start // total : len(ids) * stop // total], name)
        start = stop
    mixed = sorted(records, key=lambda record: place[record.question_id])
    return {name: [record for record in mixed if split_of[record.question_id] == name] for name in _SPLITS}


def best_threshold(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """The threshold for counting a passage as relevant that gives the best F1; the lowest one of a tie."""
    ranked = sorted(zip(scores, positive, strict=True), reverse=True)
    hits, best, chosen = 0, -1.0, ranked[0][0]
    for taken, (score, is_positive) in enumerate(ranked, 1):
        hits += is_positive
        is_last_of_ties = taken == len(ranked) or ranked[taken][0] != score
        f1 = 2 * hits / (taken + sum(positive))
        if is_last_of_ties and f1 >= best:
            best, chosen = f1, score
    return chosen


def bm25_scores(records: Sequence[RelevanceLabel]) -> list[float]:
    """BM25 of each record's passage for its question; document frequencies are those of all the records' passages."""
    from refinery.retrievers.index.postings import score_words
    from refinery.retrievers.search.postings import Postings

    passages = {record.passage.id: f"{record.passage.title} {record.passage.text}" for record in records}
    place = {passage_id: i for i, passage_id in enumerate(passages)}
    index = score_words([_words(text) for text in passages.values()], k1=1.5, b=0.75)
    postings = Postings(starts=index.starts, passages=index.passages, scores=index.scores, num_passages=len(passages))
    scores: dict[str, dict[int, float]] = {}
    for question in {record.question for record in records}:
        known = [index.number_of[word] for word in _words(question) if word in index.number_of]
        scores[question] = dict(postings.best(known, len(passages)))
    return [scores[record.question].get(place[record.passage.id], 0.0) for record in records]


def cosine_scores(records: Sequence[RelevanceLabel], encoder: str) -> list[float]:
    """Cosine of the mean-pooled embeddings of question and passage (Sentence-BERT, arXiv 1908.10084, Sec. 3)."""
    texts = {text for record in records for text in (record.question, _passage_text(record))}
    embedded = _embed(sorted(texts, key=len), encoder)
    return [float(embedded[record.question] @ embedded[_passage_text(record)]) for record in records]


def _embed(texts: Sequence[str], encoder: str) -> dict[str, Any]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = plain_text_tokenizer(AutoTokenizer.from_pretrained(encoder, trust_remote_code=False))
    model = AutoModel.from_pretrained(encoder, use_safetensors=True, trust_remote_code=False).eval()
    embedded: dict[str, Any] = {}
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        # 256 tokens are what all-MiniLM-L6-v2 is meant to read.
        inputs = tokenizer(batch, padding=True, truncation=True, max_length=256, split_special_tokens=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state  # (texts, tokens, hidden)
        mask = inputs["attention_mask"][..., None]
        mean = (hidden * mask).sum(1) / mask.sum(1)
        embedded |= dict(zip(batch, torch.nn.functional.normalize(mean, dim=-1), strict=True))
    return embedded


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _passage_text(record: RelevanceLabel) -> str:
    return f"{record.passage.title}\n{record.passage.text}"


def _split(arguments: argparse.Namespace) -> None:
    records = [record for path in arguments.labels for record in read_records(path, RelevanceLabel)]
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, rows in split_by_question(records, arguments.seed).items():
        write_records(arguments.output / f"{name}.jsonl", rows)
        questions = len({row.question_id for row in rows})
        print(f"{name}.jsonl: {questions} questions, {len(rows)} labels, {sum(row.label == 'relevant' for row in rows)} relevant")


def _table(arguments: argparse.Namespace) -> None:
    train, validation, test = (read_records(arguments.folder / f"{name}.jsonl", RelevanceLabel) for name in _SPLITS)
    shares = _trained_shares([*validation, *test], arguments.run)
    scored = {
        "BM25 score": bm25_scores([*train, *test]),
        "cosine, untrained encoder": cosine_scores([*train, *test], arguments.encoder),
    }
    rows = [
        _row(name, scores[len(train) :], test, best_threshold(scores[: len(train)], _relevant(train))) for name, scores in scored.items()
    ]
    for threshold in (0.5, best_threshold(shares[: len(validation)], _relevant(validation))):
        rows.append(_row("trained encoder", shares[len(validation) :], test, threshold))
    print("\n".join(table(("judge", "threshold", "accuracy", "F1", "AUC"), rows)))


def _relevant(records: Sequence[RelevanceLabel]) -> list[bool]:
    return [record.label == "relevant" for record in records]


def _trained_shares(records: Sequence[RelevanceLabel], run: Path) -> list[float]:
    """The probability of `relevant` that the run's checkpoint gives each record."""
    from refinery.llms.build import ModelConfig, build_llm
    from train.trainers.evaluate import relevance_shares

    return relevance_shares(build_llm(ModelConfig(base=str(run))), records)


def _row(name: str, scores: Sequence[float], records: Sequence[RelevanceLabel], threshold: float) -> list[str]:
    gold = [record.label for record in records]
    predicted = ["relevant" if score >= threshold else "irrelevant" for score in scores]
    area = auc(scores, _relevant(records))
    f1 = label_f1(predicted, gold, positive="relevant")
    return [name, *(f"{value:.3f}" for value in (threshold, accuracy(predicted, gold), f1, area))]


if __name__ == "__main__":
    sys.exit(main())
