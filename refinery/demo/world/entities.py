"""The embedded world: entities, the facts that join them, and one passage per entity.

A world is drawn from a seed. The demo's corpus joins four of them (`demo_worlds`): the common world, whose facts the tiny base
checkpoint has read many times, and one rare world per split, so that a test question never meets an entity seen in training.

In the hard world, many people, films and books go by another name that only a separate passage explains, names share their words, and
passages about the same things name other places and years.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from refinery.contract.records import Passage
from refinery.demo.world import names

EntityKind = Literal["film", "book", "person", "city", "country", "alias", "note"]
Difficulty = Literal["plain", "hard"]
COMMON_SEED = 2024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorldSize:
    """How many entities of each kind to draw; `shared_title_share` of the films get a namesake from another year.

    `alias_share` of the people, films and books have another name, under which people are credited, and `note_share` of the people and
    films a passage that does not say who or when. Names are made of `words` words of each pool, all of them by default.
    """

    films: int
    books: int
    people: int
    cities: int
    countries: int
    shared_title_share: float = 0.1
    alias_share: float = 0.0
    note_share: float = 0.0
    words: int | None = None


COMMON_SIZE = WorldSize(films=120, books=40, people=90, cities=40, countries=12, shared_title_share=0.0)
RARE_SIZES = {
    "train": WorldSize(films=560, books=150, people=480, cities=320, countries=50, shared_title_share=0.3),
    "validation": WorldSize(films=110, books=40, people=100, cities=40, countries=10, shared_title_share=0.3),
    "test": WorldSize(films=270, books=90, people=230, cities=80, countries=18, shared_title_share=0.3),
}
_HARD = {"alias_share": 0.35, "note_share": 0.5, "words": 64}


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing of the world. `facts` maps a relation's name to the object: an entity id, or a year as text."""

    id: str
    kind: EntityKind
    name: str
    title: str
    facts: dict[str, str]
    text: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """Entities by id; ids are unique across the worlds of one corpus because each starts with its world's label."""

    label: str
    entities: dict[str, Entity]

    def of_kind(self, kind: EntityKind) -> list[Entity]:
        """The entities of one kind."""
        return [entity for entity in self.entities.values() if entity.kind == kind]

    def behind(self, entity: Entity) -> Entity:
        """The entity that an alias refers to; any other entity itself."""
        return self.entities[entity.facts["real"]] if entity.kind == "alias" else entity

    def object_name(self, entity: Entity, relation: str) -> str:
        """The name of a fact's object: an entity's name, or the year itself."""
        value = entity.facts[relation]
        return self.entities[value].name if value in self.entities else value

    def passages(self) -> list[Passage]:
        """One passage per entity, with the entity's id."""
        return [Passage(id=entity.id, title=entity.title, text=entity.text) for entity in self.entities.values()]


def demo_worlds(seed: int, difficulty: Difficulty = "plain") -> dict[str, World]:
    """The worlds of the demo: `common` is the same for every seed, `train`, `validation` and `test` are new."""
    common = common_world()
    taken = {entity.name for entity in common.entities.values()}
    rng = random.Random(f"rare-{seed}")
    worlds = {"common": common}
    for split, size in RARE_SIZES.items():
        worlds[split] = draw_world(rng, replace(size, **_HARD) if difficulty == "hard" else size, label=split, taken=taken)
        taken |= {entity.name for entity in worlds[split].entities.values()}
    return worlds


def common_world() -> World:
    """The facts that the tiny base checkpoint has read; its seed never changes."""
    return draw_world(random.Random(COMMON_SEED), COMMON_SIZE, label="common", taken=set())


def draw_world(rng: random.Random, size: WorldSize, *, label: str, taken: Iterable[str], pools: "NamePools | None" = None) -> World:
    """Draw a world whose names avoid `taken`; `pools` narrows the words so that names resemble each other."""
    pools = pools or NamePools()
    draw = _Names(rng, pools.narrowed(rng, size.words) if size.words else pools, set(taken))
    entities: dict[str, Entity] = {}

    def add(kind: EntityKind, name: str, facts: dict[str, str], title: str | None = None) -> str:
        entity_id = f"{label}:{kind}:{len(entities)}"
        entities[entity_id] = Entity(entity_id, kind, name, title or name, facts)
        return entity_id

    countries = [add("country", draw.country(), {}) for _ in range(size.countries)]
    cities = [add("city", draw.city(), {"country": countries[i % len(countries)]}) for i in range(size.cities)]
    for i, country in enumerate(countries):
        entities[country].facts["capital"] = cities[i]
    people = [
        add("person", draw.person(), {"birth_city": rng.choice(cities), "birth_year": str(rng.choice(names.YEARS))})
        for _ in range(size.people)
    ]
    credited = {person: add("alias", draw.person(), {"real": person}) for person in _share(people, size.alias_share, rng)}
    for _ in range(size.books):
        name, author = draw.book(), rng.choice(people)  # drawn in this order, which the plain world's seeds depend on
        add("book", name, {"author": credited.get(author, author)})
    films_left = size.films
    while films_left > 0:
        count = 2 if films_left > 1 and rng.random() < size.shared_title_share else 1
        name, years, directors = draw.film(), rng.sample(names.YEARS, count), rng.sample(people, count)
        for year, director in zip(years, directors, strict=True):
            title = name if count == 1 else f"{name} ({year} film)"
            add("film", name, {"director": credited.get(director, director), "release_year": str(year)}, title)
        films_left -= count
    named = {"book": draw.book, "film": draw.film}
    works = [entity for entity in entities.values() if entity.kind in named and entity.title == entity.name]
    for work in _share(works, size.alias_share, rng):
        add("alias", named[work.kind](), {"real": work.id})
    for about in _share([e for e in entities.values() if e.kind in _NOTES and e.title == e.name], size.note_share, rng):
        facts = {"about": about.id, "place": rng.choice(cities), "year": str(rng.choice(names.YEARS))}
        add("note", about.name, facts, f"{about.name} ({_NOTES[about.kind][0]})")
    world = World(label, entities)
    written = {entity.id: _with_text(world, entity, rng) for entity in entities.values()}
    return World(label, written)


def _share(among: Sequence[T], share: float, rng: random.Random) -> list[T]:
    """A random share of the items. If the share is 0, no random number is drawn."""
    return rng.sample(among, round(share * len(among))) if share else []


@dataclass(frozen=True, slots=True)
class NamePools:
    """The words that names are made of."""

    first_names: tuple[str, ...] = names.FIRST_NAMES
    last_names: tuple[str, ...] = names.LAST_NAMES
    place_names: tuple[str, ...] = names.PLACE_NAMES
    place_kinds: tuple[str, ...] = names.PLACE_KINDS
    countries: tuple[str, ...] = names.COUNTRIES
    adjectives: tuple[str, ...] = names.ADJECTIVES
    nouns: tuple[str, ...] = names.NOUNS

    def narrowed(self, rng: random.Random, words: int) -> "NamePools":
        """Pools of `words` words each (countries keep theirs): draws from them share words, as a search's near misses do."""
        pick = lambda pool: tuple(rng.sample(pool, min(words, len(pool))))  # noqa: E731
        return NamePools(
            pick(self.first_names),
            pick(self.last_names),
            pick(self.place_names),
            self.place_kinds,
            self.countries,
            pick(self.adjectives),
            pick(self.nouns),
        )


class _Names:
    """Draws names that are not taken yet."""

    def __init__(self, rng: random.Random, pools: NamePools, taken: set[str]) -> None:
        self.rng, self.pools, self.taken = rng, pools, taken

    def _fresh(self, *parts: tuple[str, ...], form: str) -> str:
        while True:
            name = form.format(*(self.rng.choice(part) for part in parts))
            if name not in self.taken:
                self.taken.add(name)
                return name

    def country(self) -> str:
        return self._fresh(self.pools.countries, form="{}")

    def city(self) -> str:
        return self._fresh(self.pools.place_names, self.pools.place_kinds, form="{} {}")

    def person(self) -> str:
        return self._fresh(self.pools.first_names, self.pools.last_names, form="{} {}")

    def book(self) -> str:
        return self._fresh(self.pools.nouns, self.pools.nouns, form="The {} {}")

    def film(self) -> str:
        return self._fresh(self.pools.adjectives, self.pools.nouns, form="{} {}")


def _film(name: str, fact: Callable[[str], str], rng: random.Random) -> str:
    form = rng.choice(("{0} is a {2} film directed by {1}.", "{0} is a film by director {1}, released in {2}."))
    return form.format(name, fact("director"), fact("release_year")) + f" It is a {rng.choice(names.GENRES)}."


def _book(name: str, fact: Callable[[str], str], rng: random.Random) -> str:
    form = rng.choice(("{0} is a novel written by {1}.", "{0} is a book by author {1}."))
    return form.format(name, fact("author"))


def _person(name: str, fact: Callable[[str], str], rng: random.Random) -> str:
    form = rng.choice(("{0} is a {3} born in {1} in {2}.", "{0}, born in {2} in {1}, is a {3}."))
    return form.format(name, fact("birth_city"), fact("birth_year"), rng.choice(names.OCCUPATIONS))


def _city(name: str, fact: Callable[[str], str], rng: random.Random) -> str:
    return rng.choice(("{0} is a city in the country of {1}.", "The city of {0} lies in the country {1}.")).format(name, fact("country"))


def _country(name: str, fact: Callable[[str], str], rng: random.Random) -> str:
    return rng.choice(("{0} is a nation. The capital of {0} is {1}.", "{0} has its capital in {1}.")).format(name, fact("capital"))


def _alias(name: str, fact: Callable[[str], str], rng: random.Random) -> str:
    form = rng.choice(("{0} is another name of {1}.", "{1} is also known as {0}."))
    return form.format(name, fact("real"))


_NOTES = {
    "film": ("review", "A review of {0} was printed in {1} in {2}."),
    "person": ("interview", "An interview with {0}, held in {1} in {2}."),
}
_WRITERS = {"alias": _alias, "film": _film, "book": _book, "person": _person, "city": _city, "country": _country}


def _with_text(world: World, entity: Entity, rng: random.Random) -> Entity:
    fact = lambda relation: world.object_name(entity, relation)  # noqa: E731
    if entity.kind == "note":
        text = _NOTES[world.entities[entity.facts["about"]].kind][1].format(entity.name, fact("place"), fact("year"))
    else:
        text = _WRITERS[entity.kind](entity.name, fact, rng)
    return Entity(entity.id, entity.kind, entity.name, entity.title, entity.facts, text)
