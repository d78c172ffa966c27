import random

import pytest

from refinery.contract.records import Question, write_records
from refinery.errors import RecipeError, RecordError
from refinery.questions.base import read_questions
from refinery.runtime.recipe import build_recipe
from refinery.sample import SampleKeys, sample_report

QUESTIONS = [Question(id=str(number), text=f"Question {number}?", answers=["x"]) for number in range(200)]


@pytest.fixture
def drawn(tmp_path):
    """The texts that a sample of a file of these questions holds, in their order."""

    def draw(questions=QUESTIONS, **keys):
        write_records(tmp_path / "rows.jsonl", questions)
        return [question.text for question in read_questions([tmp_path / "rows.jsonl"], sample=SampleKeys(**keys))]

    return draw


def test_a_sample_is_drawn_without_replacement_and_keeps_the_order_of_the_file(drawn):
    texts, positions = drawn(sample=50), {question.text: position for position, question in enumerate(QUESTIONS)}
    assert len(set(texts)) == 50
    assert texts == sorted(texts, key=positions.get) != [question.text for question in QUESTIONS[:50]]


def test_a_file_in_another_order_or_with_other_ids_gives_the_same_sample(drawn):
    shuffled = random.Random(1).sample(QUESTIONS, len(QUESTIONS))
    renamed = [question.model_copy(update={"id": f"dev_{number}"}) for number, question in enumerate(shuffled)]
    assert set(drawn(renamed, sample=50)) == set(drawn(sample=50))


def test_a_larger_sample_contains_a_smaller_one_and_another_seed_draws_others(drawn):
    assert set(drawn(sample=20)) < set(drawn(sample=50))
    assert set(drawn(sample=50)) == set(drawn(sample=50, sample_seed=0)) != set(drawn(sample=50, sample_seed=1))


def test_every_question_is_about_as_likely(drawn):
    counts = {question.text: 0 for question in QUESTIONS}
    for seed in range(100):
        for text in drawn(sample=100, sample_seed=seed):
            counts[text] += 1
    assert 25 < min(counts.values()) < max(counts.values()) < 75  # five standard deviations around 50


def test_each_file_gives_a_sample_and_the_limit_takes_the_first(tmp_path):
    for name in "ab":
        write_records(tmp_path / name, [question.model_copy(update={"id": f"{name}{question.id}"}) for question in QUESTIONS])
    paths = [tmp_path / "a", tmp_path / "b"]
    both = read_questions(paths, sample=SampleKeys(sample=10))
    assert [question.id[0] for question in both] == ["a"] * 10 + ["b"] * 10
    assert read_questions(paths, sample=SampleKeys(sample=10), limit=5) == both[:5]


def test_more_than_a_file_holds_is_refused(drawn):
    with pytest.raises(RecordError, match=r"rows\.jsonl: has 200 questions, and `sample` asks for 201\. Lower it, or leave it out\."):
        drawn(sample=201)


def test_a_seed_without_a_sample_is_refused():
    with pytest.raises(RecipeError, match="sample_seed: .*nothing is drawn without `sample`"):
        build_recipe({"sample_seed": 3}, SampleKeys, where="recipe.yaml")


def test_the_report_states_size_seed_and_a_hash_of_the_ids_in_any_order():
    stated = sample_report(SampleKeys(sample=2), ["b", "a"])
    assert stated == sample_report(SampleKeys(sample=2, sample_seed=0), ["a", "b"])
    assert stated["sample"].keys() == {"size", "seed", "ids_hash"}
    assert sample_report(SampleKeys(), ["a"]) == {}
