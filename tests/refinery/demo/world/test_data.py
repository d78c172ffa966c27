import pytest

from refinery.contract.records import Passage, Question, read_records
from refinery.demo.world.data import common_share, demo_questions, write_demo_data
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import QUESTION_TYPES, parse_question

WORLDS = demo_worlds(0)
SPLITS = demo_questions(0, WORLDS)
PAIRS = [("train", "test"), ("train", "validation"), ("validation", "test")]


def named(questions: list[Question]) -> set[str]:
    return {name for question in questions for name in parse_question(question.text).names}


def needed(questions: list[Question]) -> set[str]:
    return {entity_id for question in questions for entity_id in question.supporting}


def test_the_test_split_has_at_least_200_questions_of_every_type():
    assert len(SPLITS["test"]) >= 200
    assert {question.type for question in SPLITS["test"]} == set(QUESTION_TYPES)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_entity_that_a_question_names_or_needs_occurs_in_another_split(one, other):
    assert not named(SPLITS[one]) & named(SPLITS[other])
    assert not needed(SPLITS[one]) & needed(SPLITS[other])


def test_no_name_on_the_way_to_a_test_answer_occurs_in_a_train_question():
    names = {entity.id: entity.name for world in WORLDS.values() for entity in world.entities.values()}
    on_the_way = {names[entity_id] for entity_id in needed(SPLITS["test"])}
    assert not [question.text for question in SPLITS["train"] if any(name in question.text for name in on_the_way)]


def test_common_questions_are_single_hop_and_their_share_is_known():
    common = [question for question in SPLITS["test"] if question.id.startswith("common:")]
    assert {question.type for question in common} == {"single_hop"}
    assert common_share(SPLITS["test"]) == len(common) / len(SPLITS["test"])
    assert 0.1 < common_share(SPLITS["test"]) < 0.5


def test_ids_are_unique_and_rows_say_their_split():
    rows = [question for questions in SPLITS.values() for question in questions]
    assert len({question.id for question in rows}) == len(rows)
    assert all(question.split == split for split, questions in SPLITS.items() for question in questions)


def test_the_same_seed_gives_the_same_questions_and_another_seed_others():
    assert demo_questions(0, demo_worlds(0)) == SPLITS
    rare = [question.text for question in SPLITS["test"] if not question.id.startswith("common:")]
    others = {question.text for question in demo_questions(1, demo_worlds(1))["test"]}
    assert len(others & set(rare)) < 0.05 * len(rare)


def test_what_is_written_is_read_back(tmp_path):
    paths = write_demo_data(0, tmp_path / "data")
    assert set(paths) == {"passages", "train", "validation", "test", "confusable_train", "confusable_test"}
    passages = {passage.id for passage in read_records(paths["passages"], Passage)}
    for split, questions in SPLITS.items():
        assert read_records(paths[split], Question) == questions
        assert needed(questions) <= passages


def test_confusable_questions_are_a_worlds_own_and_a_selector_is_never_trained_on_the_tests(tmp_path):
    paths = write_demo_data(0, tmp_path / "data")
    train, test = (read_records(paths[f"confusable_{split}"], Question) for split in ("train", "test"))
    assert len({question.id for question in train}) == len(train)
    assert {question.split for question in train} == {"train"}
    assert {question.type for question in test} == {"single_hop"}
    assert not {question.text for question in train} & {question.text for question in test}
    rare = {passage for question in test for passage in question.supporting}
    assert not rare & {passage for question in train for passage in question.supporting or []}
