import random

import pytest

from refinery.demo.world.entities import RARE_SIZES, WorldSize, common_world, demo_worlds, draw_world

WORLDS = demo_worlds(0)
SMALL = WorldSize(films=20, books=5, people=12, cities=6, countries=3, shared_title_share=0.5)


def entities(worlds):
    return [entity for world in worlds.values() for entity in world.entities.values()]


def test_the_corpus_holds_a_passage_per_entity_and_2500_at_least():
    passages = [passage for world in WORLDS.values() for passage in world.passages()]
    assert len(passages) >= 2500
    assert [passage.id for passage in passages] == [entity.id for entity in entities(WORLDS)]


def test_the_same_seed_draws_the_same_world():
    assert demo_worlds(0) == WORLDS


def test_another_seed_draws_other_rare_entities_and_the_same_common_facts():
    other = demo_worlds(1)
    assert other["common"] == WORLDS["common"] == common_world()
    for split in RARE_SIZES:
        ours, theirs = ({(e.name, tuple(sorted(e.facts.items()))) for e in worlds[split].entities.values()} for worlds in (WORLDS, other))
        assert len(ours & theirs) < 0.05 * len(ours)


def test_no_name_is_used_in_two_worlds():
    names = [{entity.name for entity in world.entities.values()} for world in WORLDS.values()]
    assert len(set().union(*names)) == sum(map(len, names))


def test_ids_and_titles_are_unique():
    assert len({entity.id for entity in entities(WORLDS)}) == len(entities(WORLDS))
    assert len({entity.title for entity in entities(WORLDS)}) == len(entities(WORLDS))


@pytest.mark.parametrize("split", WORLDS)
def test_every_fact_points_into_its_own_world_and_stands_in_the_passage(split):
    world = WORLDS[split]
    for entity in world.entities.values():
        assert entity.facts or entity.kind == "country"
        for relation, value in entity.facts.items():
            assert value in world.entities or value.isdigit()
            assert world.object_name(entity, relation) in entity.text
        assert entity.name in entity.text


def test_a_capital_lies_in_its_country():
    for world in WORLDS.values():
        for country in world.of_kind("country"):
            assert world.entities[country.facts["capital"]].facts["country"] == country.id


def test_films_that_share_a_name_differ_in_year_and_title():
    films: dict[str, list] = {}
    for film in WORLDS["test"].of_kind("film"):
        films.setdefault(film.name, []).append(film)
    shared = [pair for pair in films.values() if len(pair) > 1]
    assert len(shared) >= 20
    assert all(len({film.facts["release_year"] for film in pair}) == len(pair) == 2 for pair in shared)
    assert all(film.title == f"{film.name} ({film.facts['release_year']} film)" for pair in shared for film in pair)


def test_the_common_world_has_no_namesakes():
    assert len({film.name for film in common_world().of_kind("film")}) == len(common_world().of_kind("film"))


def test_a_world_avoids_the_names_that_are_taken():
    first = draw_world(random.Random(0), SMALL, label="a", taken=set())
    names = {entity.name for entity in first.entities.values()}
    second = draw_world(random.Random(0), SMALL, label="b", taken=names)
    assert not names & {entity.name for entity in second.entities.values()}
