"""The rows that the tiny base checkpoint reads: closed-book questions about the common world, and reading, synthesis and comparison in
worlds drawn fresh for every step, so that nothing but reading answers them."""

import random
from collections.abc import Callable, Sequence

from refinery.contract.records import Passage, Question
from refinery.contract.segments import Segment
from refinery.contract.sub_questions import fill_references
from refinery.demo.world.entities import NamePools, WorldSize, common_world, draw_world
from refinery.demo.world.names import YEARS
from refinery.demo.world.questions import draw_questions, with_years
from refinery.prompts.render import render_prompt

# The size of a fresh world, and the number of words of a kind in its names: the fewer, the more similar the names, up to "The Echo
# Horizon" and "The Horizon Echo".
_FRESH = [(WorldSize(films=24, books=8, people=24, cities=12, countries=6, shared_title_share=0.3), words) for words in (12, 20, 60)]
_CROWDED = (WorldSize(films=12, books=12, people=12, cities=12, countries=6, shared_title_share=0.3), 5)
UNKNOWN = "no answer"
# How often passages are in search order rather than shuffled.
_SEARCH_ORDER_SHARE = 0.75
_YEARS_PER_ROW = 12
_COMPARISONS_PER_ROW = 12
_DATED_PER_ROW = 4
_READ_SHARE = 0.4


class _Common:
    """The common world and its single-hop questions, drawn once."""

    world = common_world()
    passages = world.passages()
    questions = draw_questions(world, random.Random(0), {"single_hop": 10**6})
    names = frozenset(entity.name for entity in world.entities.values())


class FreshWorld:
    """A small world of resembling names that exists for one step."""

    def __init__(self, rng: random.Random, *, crowded: bool = False) -> None:
        size, words = _CROWDED if crowded else rng.choice(_FRESH)
        world = draw_world(rng, size, label="fresh", taken=_Common.names, pools=NamePools().narrowed(rng, words=words))
        self.passages = {passage.id: passage for passage in world.passages()}
        counts = {"single_hop": 10**6, "two_hop": 40, "three_hop": 30, "comparison": 30, "ambiguous": 20}
        by_type = [draw_questions(world, rng, {kind: count}) for kind, count in counts.items()]
        self.questions = [rng.choice(questions) for questions in by_type if questions for _ in range(12)]
        self.single_hop, self.chains, self.comparisons = by_type[0], by_type[1] + by_type[2], by_type[3]
        self.follow_ups = [question for questions in by_type for question in questions if question.type != "ambiguous"]


def closed_book_row(rng: random.Random, fresh: FreshWorld | None) -> list[Segment]:
    """A question about the common world."""
    question = rng.choice(_Common.questions)
    return answered(render_prompt("answer_direct", question=question.text), question.answers[0])


def _unknown(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    """A closed-book question about unknown names, with the reply of a model that knows its limits."""
    return answered(render_prompt("answer_direct", question=rng.choice(fresh.single_hop).text), UNKNOWN)


def _passage(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    passage = rng.choice(_Common.passages)
    return [Segment(f"{passage.title}: {passage.text}", "answer", True), Segment("</s>", "control_token", True)]


def _reading(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    """A question before its passages, as in inference; most rows add questions about the same passages, for a denser signal."""
    chosen, segments = reading_row(rng.choice(fresh.questions), fresh.passages, rng, distractors=rng.choice((0, 1, 2, 3, 4)))
    answerable = [question for question in fresh.follow_ups if chosen.issuperset(question.supporting or [])]
    for question in rng.sample(answerable, min(len(answerable), rng.choice((0, 4, 8, 10)))):
        segments += answered(f"\nQuestion: {question.text}\nAnswer:", question.answers[0])
    return segments


def _step_by_step(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    """A chain asked hop by hop, each with its passages: a later question contains a name from an earlier passage."""
    question = rng.choice(fresh.chains)
    segments: list[Segment] = []
    filled = fill_sub_questions(question)
    for (text, answer), passage_id in zip(filled, question.supporting or [], strict=True):
        hop = question.model_copy(update={"text": text, "answers": [answer], "supporting": [passage_id]})
        segments += reading_row(hop, fresh.passages, rng, distractors=rng.choice((0, 1, 1, 2)))[1]
        segments.append(Segment("\n", "prompt"))
    return segments + answered(f"Question: {question.text}\nAnswer:", question.answers[0])


def _synthesis(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    kinds = rng.choice((("two_hop", "three_hop"), ("comparison",)))
    return synthesis_row(rng.choice([question for question in fresh.questions if question.type in kinds]))


def _years(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    """The earlier of two years, several times in one row."""
    pairs = [rng.sample(YEARS, 2) for _ in range(_YEARS_PER_ROW)]
    rows = [answered(f"Question: Which year came first, {one} or {other}?\nAnswer:", str(min(one, other))) for one, other in pairs]
    return _one_after_another(rows)


def _comparison(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    """Comparisons that state their years, the first of them sometimes before the passages that a search for it finds.

    A base this small cannot compare names whose years are passages away; it has to write the years beside them first.
    """
    drawn = rng.sample(fresh.comparisons, min(len(fresh.comparisons), _COMPARISONS_PER_ROW))
    chosen = [question.model_copy(update={"text": with_years(question)}) for question in drawn]
    rows = [answered(f"Question: {question.text}\nAnswer:", question.answers[0]) for question in chosen]
    if rng.random() < _READ_SHARE:
        rows[0] = reading_row(chosen[0], fresh.passages, rng, distractors=rng.choice((0, 1, 2, 3)))[1]
    return _one_after_another(rows)


def _dating(rng: random.Random, fresh: FreshWorld) -> list[Segment]:
    """Comparisons after the passages about all their names: asked once more with the years, then answered."""
    question = rng.choice(fresh.comparisons)
    alike = [other for other in fresh.comparisons if other.id.split(":")[-1] == question.id.split(":")[-1]]
    others = rng.sample(alike, min(len(alike), 2))
    named = {passage_id for one in (question, *others) for passage_id in one.supporting or []}
    shown = rng.sample(sorted(named), len(named))
    asked = [one for one in fresh.comparisons if named.issuperset(one.supporting or [])]
    prompt = render_prompt("answer_with_passages", question=question.text, passages=[fresh.passages[i] for i in shown])
    rows = [[Segment(prompt.removesuffix("Answer:"), "prompt"), *_dated(question)]]
    for one in rng.sample(asked, min(len(asked), _DATED_PER_ROW)):
        rows.append([Segment(f"Question: {one.text}\n", "prompt"), *_dated(one)])
    return _one_after_another(rows)


def _dated(question: Question) -> list[Segment]:
    stated = [Segment("With years:", "prompt"), Segment(f" {with_years(question)}", "answer", True), Segment("\n", "prompt")]
    return [*stated, *answered("Answer:", question.answers[0])]


def _one_after_another(rows: Sequence[list[Segment]]) -> list[Segment]:
    return [segment for number, row in enumerate(rows) for segment in ([Segment("\n", "prompt")] if number else []) + row]


ROW_WRITERS: dict[str, Callable[[random.Random, FreshWorld], list[Segment]]] = {
    "closed_book": closed_book_row,
    "unknown": _unknown,
    "passage": _passage,
    "reading": _reading,
    "step_by_step": _step_by_step,
    "synthesis": _synthesis,
    "years": _years,
    "comparison": _comparison,
    "dating": _dating,
}


def answered(prompt: str, answer: str) -> list[Segment]:
    """A prompt and its answer, closed by the end of sequence."""
    return [Segment(prompt, "prompt"), Segment(f" {answer}", "answer", True), Segment("</s>", "control_token", True)]


def reading_row(
    question: Question, passages: dict[str, Passage], rng: random.Random, *, distractors: int
) -> tuple[set[str], list[Segment]]:
    """A question with the passages that answer it among near misses, mostly in search order. Also returns the ids shown."""
    meant = question.supporting or []
    chosen = list(meant)
    words = set(question.text.rstrip("?").split()) - _STOP_WORDS
    near = [passage.id for passage in passages.values() if not words.isdisjoint(_words(passage))]
    kind = chosen[0].split(":")[1]
    alike = [passage_id for passage_id in passages if passage_id.split(":")[1] == kind]
    for _ in range(distractors):
        candidate = rng.choice(rng.choice([near or alike, alike, list(passages)]))
        if candidate not in chosen and passages[candidate].title.split(" (")[0] not in question.text:
            chosen.append(candidate)
    rng.shuffle(chosen)
    if rng.random() < _SEARCH_ORDER_SHARE:
        chosen.sort(key=lambda i: -sum(word in words for word in _words(passages[i])))
    answer = question.answers[0]
    if question.type == "ambiguous" and chosen.index(meant[0]) > chosen.index(meant[1]):
        answer = question.answers[1]
    prompt = render_prompt("answer_with_passages", question=question.text, passages=[passages[i] for i in chosen])
    return set(chosen), answered(prompt, answer)


def _words(passage: Passage) -> list[str]:
    return f"{passage.title} {passage.text}".replace(".", "").replace(",", "").split()


_STOP_WORDS = frozenset("Who When Where What Which is was the of in born released film came out first or country capital".split())


def synthesis_row(question: Question) -> list[Segment]:
    """A question with its sub-questions answered, references filled in."""
    prompt = render_prompt("answer_from_sub_answers", question=question.text, sub_answers=fill_sub_questions(question))
    return answered(prompt, question.answers[0])


def fill_sub_questions(question: Question) -> list[tuple[str, str]]:
    """The sub-questions, with earlier answers where they refer to them, and their answers."""
    filled: list[tuple[str, str]] = []
    for sub in question.decomposition or []:
        filled.append((fill_references(sub.text, [answer for _, answer in filled]), sub.answer or ""))
    return filled
