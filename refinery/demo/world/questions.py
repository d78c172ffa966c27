"""Questions about an embedded world: single-hop, two- and three-hop, comparison and ambiguous, with gold answers and decompositions.

The phrasings live here once: `draw_questions` writes them, and the demo's teacher reads them back with `parse_question`.
"""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from refinery.contract.records import Question, SubQuestion
from refinery.demo.world.entities import Entity, EntityKind, World


@dataclass(frozen=True, slots=True)
class Relation:
    """The phrasings of one relation: as a question, as a noun phrase inside a longer question, and as a search query."""

    name: str
    subject_kind: EntityKind
    question: str
    phrase: str
    query: str


RELATIONS = {
    relation.name: relation
    for relation in (
        Relation("director", "film", "Who directed {}?", "the director of {}", "director of film {}"),
        Relation("release_year", "film", "When was {} released?", "the release year of {}", "release year of film {}"),
        Relation("author", "book", "Who wrote {}?", "the author of {}", "author of book {}"),
        Relation("birth_city", "person", "Where was {} born?", "the birthplace of {}", "{} born in city"),
        Relation("birth_year", "person", "When was {} born?", "the birth year of {}", "{} born in year"),
        Relation("country", "city", "Which country is {} in?", "the country of {}", "{} city country"),
        Relation("capital", "country", "What is the capital of {}?", "the capital of {}", "capital of {}"),
    )
}
CHAINS = {
    "single_hop": [(name,) for name in RELATIONS],
    "two_hop": [
        ("director", "birth_city"),
        ("director", "birth_year"),
        ("author", "birth_city"),
        ("author", "birth_year"),
        ("birth_city", "country"),
        ("country", "capital"),
    ],
    "three_hop": [
        ("director", "birth_city", "country"),
        ("author", "birth_city", "country"),
        ("birth_city", "country", "capital"),
    ],
    "four_hop": [("director", "birth_city", "country", "capital"), ("author", "birth_city", "country", "capital")],
}
COMPARISONS = {"release_year": "Which film came out first, {} or {}?", "birth_year": "Who was born first, {} or {}?"}
AMBIGUOUS_RELATIONS = ("director", "release_year")
NAMESAKES_QUERY = "all films named {}"
ALIAS_QUERY = "another name of {}"
MOST_SEARCHES = 5  # that a question needs
MULTI_HOP_TYPES = ("two_hop", "three_hop", "comparison")
QUESTION_TYPES = ("single_hop", *MULTI_HOP_TYPES, "ambiguous")


def draw_questions(world: World, rng: random.Random, counts: dict[str, int], *, subjects: set[str] | None = None) -> list[Question]:
    """Draw `counts[type]` questions of each type; `subjects` limits the entities they may name. There may be fewer if fewer exist."""
    shared = _shared_titles(world)
    allowed = {e.id for e in world.entities.values() if subjects is None or e.id in subjects} - {e.id for pair in shared for e in pair}
    drawn: list[Question] = []
    for kind, count in counts.items():
        if kind == "comparison":
            candidates = list(_comparisons(world, allowed, rng, count))
        elif kind == "ambiguous":
            candidates = [_ambiguous(world, pair, relation) for pair in shared for relation in AMBIGUOUS_RELATIONS]
        else:
            candidates = [
                _chain_question(world, entity, chain, kind)
                for chain in CHAINS[kind]
                for entity in _subjects(world, RELATIONS[chain[0]].subject_kind)
                if entity.id in allowed
            ]
            candidates = [question for question in candidates if len(question.supporting or []) <= MOST_SEARCHES]
        # "What is the capital of the country of X?" answers itself where X is that capital; a comparison names its answer by nature.
        candidates = [q for q in candidates if kind == "comparison" or q.answers[0] not in q.text]
        drawn += rng.sample(candidates, min(count, len(candidates)))
    return drawn


def compose(chain: tuple[str, ...], name: str) -> str:
    """The question that asks for the last relation of a chain starting at the entity called `name`."""
    for relation in chain[:-1]:
        name = RELATIONS[relation].phrase.format(name)
    return RELATIONS[chain[-1]].question.format(name)


def decompose(chain: tuple[str, ...], name: str) -> list[str]:
    """The single-hop sub-questions of a chain; each later one refers to the answer before it."""
    return [RELATIONS[relation].question.format(f"#{i}" if i else name) for i, relation in enumerate(chain)]


def compare_years(relation: str, years: Mapping[str, str]) -> str:
    """A comparison with each name's year inserted: "Which film came out first, Bitter Anchor 1950 or Silver Road 1970?"."""
    return COMPARISONS[relation].format(*(f"{name} {year}" for name, year in years.items()))


def with_years(question: Question) -> str:
    """A comparison's text with the years inserted, which are the answers of its sub-questions."""
    parsed = parse_question(question.text)
    assert parsed is not None
    years = [sub.answer or "" for sub in question.decomposition or []]
    return compare_years(parsed.chain[0], dict(zip(parsed.names, years, strict=True)))


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A question read back: the relations asked, first to last, and the names it mentions (two for a comparison)."""

    chain: tuple[str, ...]
    names: tuple[str, ...]


def parse_question(text: str) -> ParsedQuestion | None:
    """Read a question of this world, or None for anything else."""
    for relation, template in COMPARISONS.items():
        if match := re.fullmatch(_pattern(template), text):
            return ParsedQuestion((relation,), match.groups())
    for relation in RELATIONS.values():
        if match := re.fullmatch(_pattern(relation.question), text):
            chain, name = [relation.name], match.group(1)
            while (inner := _parse_phrase(name)) is not None:
                chain.insert(0, inner[0])
                name = inner[1]
            return ParsedQuestion(tuple(chain), (name,))
    return None


def _parse_phrase(text: str) -> tuple[str, str] | None:
    for relation in RELATIONS.values():
        if match := re.fullmatch(_pattern(relation.phrase), text):
            return relation.name, match.group(1)
    return None


def _pattern(template: str) -> str:
    return re.escape(template).replace(r"\{\}", "(.+?)")


def _shared_titles(world: World) -> list[tuple[Entity, Entity]]:
    """Pairs of films that share a name."""
    by_name: dict[str, list[Entity]] = {}
    for film in world.of_kind("film"):
        by_name.setdefault(film.name, []).append(film)
    return [(films[0], films[1]) for films in by_name.values() if len(films) == 2]


def _subjects(world: World, kind: EntityKind) -> list[Entity]:
    """Possible subjects of a question: entities by their own names, then by aliases."""
    return world.of_kind(kind) + [alias for alias in world.of_kind("alias") if world.behind(alias).kind == kind]


def _chain_question(world: World, subject: Entity, chain: tuple[str, ...], kind: str) -> Question:
    entity, supporting, answers = subject, [], []
    for relation in chain:
        supporting += dict.fromkeys((entity.id, world.behind(entity).id))
        entity = world.behind(entity)
        answers.append(world.object_name(entity, relation))
        entity = world.entities.get(entity.facts[relation], entity)
    sub_questions = zip(decompose(chain, subject.name), answers, strict=True)
    return Question(
        id=f"{subject.id}:{'.'.join(chain)}",
        text=compose(chain, subject.name),
        answers=[answers[-1]],
        supporting=supporting,
        decomposition=[SubQuestion(text=text, answer=answer) for text, answer in sub_questions],
        type=kind,
        dataset="world",
        split=world.label,
    )


def _comparisons(world: World, allowed: set[str], rng: random.Random, count: int) -> Iterator[Question]:
    for relation, template in COMPARISONS.items():
        subjects = [e for e in world.of_kind(RELATIONS[relation].subject_kind) if e.id in allowed]
        num_pairs = len(subjects) * (len(subjects) - 1)
        for number in rng.sample(range(num_pairs), min(count, num_pairs)):
            place, other = divmod(number, len(subjects) - 1)
            first, second = subjects[place], subjects[other + (other >= place)]
            years = [int(first.facts[relation]), int(second.facts[relation])]
            if years[0] == years[1]:
                continue
            ask = RELATIONS[relation].question
            yield Question(
                id=f"{first.id}:{second.id}:{relation}",
                text=template.format(first.name, second.name),
                answers=[first.name if years[0] < years[1] else second.name],
                supporting=[first.id, second.id],
                decomposition=[SubQuestion(text=ask.format(e.name), answer=e.facts[relation]) for e in (first, second)],
                type="comparison",
                dataset="world",
                split=world.label,
            )


def _ambiguous(world: World, pair: tuple[Entity, Entity], relation: str) -> Question:
    """Both films answer the question; either order of the two answers is right."""
    found = [world.object_name(film, relation) for film in pair]
    return Question(
        id=f"{pair[0].id}:{pair[1].id}:{relation}",
        text=RELATIONS[relation].question.format(pair[0].name),
        answers=[" and ".join(found), " and ".join(reversed(found))],
        supporting=[film.id for film in pair],
        type="ambiguous",
        dataset="world",
        split=world.label,
    )
