import random
import re
from itertools import pairwise

import pytest

from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import CHAINS, COMPARISONS, QUESTION_TYPES, RELATIONS, compose, decompose, draw_questions, parse_question

WORLDS = demo_worlds(0)
COUNTS = dict.fromkeys(QUESTION_TYPES, 10_000) | {"comparison": 500}  # all of the others; comparisons are as many as there are pairs
QUESTIONS = {label: draw_questions(world, random.Random(0), COUNTS) for label, world in WORLDS.items()}
TEST = QUESTIONS["test"]
TEXTS = {entity.id: entity.text for world in WORLDS.values() for entity in world.entities.values()}


def of_type(kind: str):
    return [question for question in TEST if question.type == kind]


def test_there_are_five_types_of_question():
    assert {question.type for question in TEST} == set(QUESTION_TYPES)
    assert all(len(of_type(kind)) >= 20 for kind in QUESTION_TYPES)


def test_the_same_seed_draws_the_same_questions():
    counts = dict.fromkeys(QUESTION_TYPES, 20)
    drawn = [draw_questions(WORLDS["test"], random.Random(seed), counts) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("label", WORLDS)
def test_every_question_is_read_back(label):
    for question in QUESTIONS[label]:
        parsed = parse_question(question.text)
        *subjects, relations = re.split(r":(?=[a-z_.]+$)", question.id)
        named = [WORLDS[label].entities[entity_id].name for entity_id in re.findall(r"\w+:\w+:\d+", subjects[0])]
        assert parsed is not None, question.text
        assert parsed.chain == tuple(relations.split("."))
        assert parsed.names == (tuple(named) if question.type == "comparison" else (named[0],))


@pytest.mark.parametrize("text", ["", "Who?", "Who directed", "What is love?", "Where was Maria born", "Which film came out first, Dune?"])
def test_anything_else_is_not_read(text):
    assert parse_question(text) is None


@pytest.mark.parametrize("kind", ["single_hop", "two_hop", "three_hop"])
def test_a_chains_answers_stand_in_its_passages_hop_by_hop(kind):
    for question in of_type(kind):
        for passage_id, sub_question in zip(question.supporting, question.decomposition, strict=True):
            assert sub_question.answer in TEXTS[passage_id]
        assert question.answers == [question.decomposition[-1].answer]


@pytest.mark.parametrize("kind", ["two_hop", "three_hop"])
def test_a_later_hop_starts_at_the_answer_before_it(kind):
    for question in of_type(kind):
        hops = list(zip(question.supporting, question.decomposition, strict=True))
        for (_, before), (passage_id, sub_question) in pairwise(hops):
            number = question.decomposition.index(before) + 1
            assert f"#{number}" in sub_question.text
            assert WORLDS["test"].entities[passage_id].name == before.answer


@pytest.mark.parametrize("kind", ["two_hop", "three_hop"])
def test_the_question_names_none_of_its_bridges(kind):
    for question in of_type(kind):
        assert not any(sub_question.answer in question.text for sub_question in question.decomposition[:-1])


def test_a_comparison_is_won_by_the_earlier_year():
    for question in of_type("comparison"):
        years = [int(sub_question.answer) for sub_question in question.decomposition]
        entities = [WORLDS["test"].entities[passage_id] for passage_id in question.supporting]
        assert all(str(year) in entity.text for year, entity in zip(years, entities, strict=True))
        assert years[0] != years[1]
        assert question.answers == [entities[years.index(min(years))].name]


def test_an_ambiguous_question_has_both_answers_in_either_order():
    for question in of_type("ambiguous"):
        first, second = question.answers[0].split(" and ")
        assert question.answers == [f"{first} and {second}", f"{second} and {first}"]
        assert first in TEXTS[question.supporting[0]]
        assert second in TEXTS[question.supporting[1]]


def test_only_ambiguous_questions_name_a_film_that_has_a_namesake():
    films = [film.name for film in WORLDS["test"].of_kind("film")]
    for question in TEST:
        shared = any(films.count(name) > 1 for name in parse_question(question.text).names)
        assert shared == (question.type == "ambiguous")


def test_subjects_limit_the_entities_that_are_named():
    subjects = {entity.id for entity in WORLDS["common"].of_kind("book")[:5]}
    drawn = draw_questions(WORLDS["common"], random.Random(0), {"single_hop": 100}, subjects=subjects)
    assert {question.supporting[0] for question in drawn} == subjects


@pytest.mark.parametrize("chain", [chain for chains in CHAINS.values() for chain in chains])
def test_each_hop_of_a_chain_is_asked_about_on_its_own(chain):
    sub_questions = decompose(chain, "Dune")
    assert [parse_question(text).chain for text in sub_questions] == [(relation,) for relation in chain]
    assert parse_question(compose(chain, "Dune")).chain == chain


def test_every_phrasing_is_reached():
    asked = {relation for question in TEST for relation in parse_question(question.text).chain}
    assert asked == set(RELATIONS)
    assert {parse_question(question.text).chain[0] for question in of_type("comparison")} == set(COMPARISONS)
