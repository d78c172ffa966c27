"""The hard world: other names, more hops, misleading passages, and labels of a part of the training questions."""

import re

import pytest

from refinery.contract.records import Question, read_records
from refinery.demo.teacher.replies import DemoTeacher
from refinery.demo.world.data import demo_questions, write_demo_data
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import MOST_SEARCHES, parse_question

WORLDS = demo_worlds(0, "hard")
SPLITS = demo_questions(0, WORLDS, "hard")
PASSAGES = {passage.id: passage for world in WORLDS.values() for passage in world.passages()}
QUESTIONS = [question for questions in SPLITS.values() for question in questions]


def test_the_common_world_is_the_one_that_the_base_model_has_read():
    assert WORLDS["common"] == demo_worlds(0)["common"]


def test_there_are_200_test_questions_and_most_training_questions_are_not_labeled():
    assert len(SPLITS["test"]) == 200
    assert len(SPLITS["unlabeled"]) == pytest.approx(3 * len(SPLITS["train"]), rel=0.01)
    assert {question.split for question in SPLITS["unlabeled"]} == {"train"}


@pytest.mark.parametrize("other", ["train", "unlabeled", "validation"])
def test_no_test_question_is_asked_elsewhere_or_needs_a_passage_of_another(other):
    texts, needed = ({q.text for q in SPLITS[other]}, {id for q in SPLITS[other] for id in q.supporting})
    assert not texts & {question.text for question in SPLITS["test"]}
    assert not {id for question in SPLITS["test"] for id in question.supporting} & needed


def test_an_answer_needs_at_most_as_many_searches_as_a_path_has():
    assert max(len(question.supporting) for question in QUESTIONS) == MOST_SEARCHES
    assert sum(question.type == "four_hop" for question in SPLITS["test"]) >= 20


def test_another_name_is_explained_by_a_passage_of_its_own_and_nowhere_said_otherwise():
    alias = next(entity for entity in WORLDS["test"].of_kind("alias"))
    real = WORLDS["test"].behind(alias)
    assert {alias.name, real.name} <= {name for name in (alias.name, real.name) if name in alias.text}
    assert alias.name not in real.text


def test_the_teacher_reaches_every_answer_from_the_passages_that_a_question_needs():
    teacher = DemoTeacher(WORLDS)
    for question in SPLITS["test"]:
        titles = [PASSAGES[id].title for id in question.supporting]
        parsed = parse_question(question.text)
        if len(parsed.names) == 1:
            assert teacher._chain_step(parsed.chain, parsed.names[0], titles, from_memory=False) in [
                ("answer", a) for a in question.answers
            ]


def test_a_question_by_another_name_is_first_looked_up_under_it():
    question = next(q for q in SPLITS["test"] if ":alias:" in q.id and q.type == "single_hop")
    parsed = parse_question(question.text)
    action, text = DemoTeacher(WORLDS)._chain_step(parsed.chain, parsed.names[0], [], from_memory=False)
    assert (action, text) == ("rewrite", f"another name of {parsed.names[0]}")


def test_a_passage_about_the_same_thing_names_another_place_or_year():
    note = next(entity for entity in WORLDS["test"].of_kind("note"))
    about = WORLDS["test"].entities[note.facts["about"]]
    assert note.title.startswith(f"{about.name} (")
    assert re.search(r"\b\d{4}\b", note.text)


def test_what_is_written_is_read_back(tmp_path):
    paths = write_demo_data(0, tmp_path, "hard")
    assert set(paths) == {"passages", "train", "unlabeled", "validation", "test"}
    assert read_records(paths["unlabeled"], Question) == SPLITS["unlabeled"]
