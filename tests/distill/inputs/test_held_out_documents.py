from collections import Counter

import pytest

from distill.inputs.held_out_documents import Shares, joint_split, sampled, splits_of_documents
from refinery.errors import RecipeError
from refinery.runtime.recipe import build_recipe

TENTHS = Shares(validation=0.1, test=0.1)


def documents(count, name="document", size=1):
    return {f"{name}-{number}.md": size for number in range(count)}


def test_each_split_gets_its_share_of_the_questions():
    sizes = {f"{number}.md": 1 + number % 40 for number in range(63)}
    splits = splits_of_documents(sizes, TENTHS)
    counts = Counter(splits[document] for document, size in sizes.items() for _ in range(size))
    assert counts["validation"] == pytest.approx(sum(sizes.values()) / 10, abs=1)
    assert counts["test"] == pytest.approx(sum(sizes.values()) / 10, abs=1)


def test_a_document_that_is_larger_than_a_share_trains():
    splits = splits_of_documents({**documents(40, size=10), "large.md": 200}, TENTHS)
    assert splits["large.md"] == "train"
    assert set(splits.values()) == {"train", "validation", "test"}


def test_adding_a_document_moves_few_of_the_others():
    before = splits_of_documents(documents(200), TENTHS)
    after = splits_of_documents({**documents(10, "added"), **documents(200)}, TENTHS)
    assert sum(after[name] != split for name, split in before.items()) <= 6


def test_a_sample_is_as_even_as_that_of_the_questions():
    assert sampled({"a.md": 100, "b.md": 3, "c.md": 20}, 23) == {"a.md": 10, "b.md": 3, "c.md": 10}
    assert sampled({"a.md": 2}, 100) == {"a.md": 2}
    assert sampled({}, 1) == {}


def test_another_validation_share_moves_no_test_document():
    test = {name for name, split in splits_of_documents(documents(200), TENTHS).items() if split == "test"}
    more = splits_of_documents(documents(200), Shares(validation=0.3, test=0.1))
    assert {name for name, split in more.items() if split == "test"} == test


@pytest.mark.parametrize("count", [5, 6, 7, 10, 20])
def test_a_few_documents_still_give_every_split_some(count):
    for name in map(str, range(100)):
        assert set(splits_of_documents(documents(count, name), TENTHS).values()) == {"train", "validation", "test"}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_less_than_half_a_document_is_not_held_out(count):
    for name in map(str, range(100)):
        assert set(splits_of_documents(documents(count, name), TENTHS).values()) == {"train"}


def test_one_document_always_trains():
    most = Shares(validation=0.45, test=0.5)
    assert all("train" in splits_of_documents(documents(3, name), most).values() for name in map(str, range(100)))


def test_without_shares_everything_trains():
    assert set(splits_of_documents(documents(100), Shares()).values()) == {"train"}


def test_a_question_about_two_documents_is_held_out_if_one_of_them_is():
    assert joint_split(["train", "train"]) == "train"
    assert joint_split(["train", "validation"]) == "validation"
    assert joint_split(["validation", "test", "train"]) == "test"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"validation": 0.5, "test": 0.5}, "split: validation and test leave no document to train on; their sum must be below 1"),
        ({"validation": -0.1}, "split.validation: Input should be greater than or equal to 0"),
        ({"test": 1}, "split.test: Input should be less than 1"),
        ({"tset": 0.1}, "split.tset: unknown key. Did you mean 'test'?"),
    ],
)
def test_wrong_shares_are_refused(values, message):
    with pytest.raises(RecipeError, match=message):
        build_recipe(values, Shares, where="recipe.yaml", part="split")
