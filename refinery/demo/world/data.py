"""The demo's questions and passages: the amounts drawn from the embedded world, and the part of it that each split sees."""

import random
from pathlib import Path

from refinery.contract.records import Question, write_records
from refinery.demo.world.entities import Difficulty, World, demo_worlds
from refinery.demo.world.questions import draw_questions

# Questions per split about rare entities, by type, and single-hop questions about common ones.
RARE_COUNTS = {
    "train": {"single_hop": 350, "two_hop": 400, "three_hop": 330, "comparison": 180, "ambiguous": 140},
    "validation": {"single_hop": 60, "two_hop": 40, "three_hop": 30, "comparison": 30, "ambiguous": 20},
    "test": {"single_hop": 50, "two_hop": 40, "three_hop": 25, "comparison": 15, "ambiguous": 20},
}
COMMON_COUNTS = {"train": 200, "validation": 60, "test": 50}
# For the hard world. The teacher labels `LABELED_SHARE` of the training questions of each type; the others have only their answers.
HARD_COUNTS = {
    "train": {"single_hop": 240, "two_hop": 400, "three_hop": 400, "four_hop": 260, "comparison": 180, "ambiguous": 120},
    "validation": {"single_hop": 20, "two_hop": 40, "three_hop": 40, "four_hop": 20, "comparison": 20, "ambiguous": 10},
    "test": {"single_hop": 25, "two_hop": 45, "three_hop": 50, "four_hop": 30, "comparison": 20, "ambiguous": 15},
}
HARD_COMMON_COUNTS = {"train": 60, "validation": 20, "test": 15}
LABELED_SHARE = 0.25
_COMMON = "common:"  # how the ids of that world's questions begin

# Single-hop questions about these name entities whose names resemble many others ("The Echo Horizon", "The Horizon Echo"), and a passage
# contains another name of the same kind, easily mistaken for the answer: RQ-RAG's paths disagree on them most.
CONFUSABLE_RELATIONS = ("author", "country", "capital")
# The number of other training questions for the selector, besides the confusable ones.
_OTHERS_FOR_SELECTION = 400


def write_demo_data(seed: int, folder: Path, difficulty: Difficulty = "plain") -> dict[str, Path]:
    """Write `passages.jsonl` and one questions file per split. Returns their paths by name.

    The plain world also has those of the learned selector, the hard one `unlabeled.jsonl`, the training questions without labels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    worlds = demo_worlds(seed, difficulty)
    others = ("unlabeled",) if difficulty == "hard" else ("confusable_train", "confusable_test")
    paths = {name: folder / f"{name}.jsonl" for name in ("passages", *RARE_COUNTS, *others)}
    write_records(paths["passages"], [passage for world in worlds.values() for passage in world.passages()])
    questions = demo_questions(seed, worlds, difficulty)
    for split, drawn in questions.items():
        write_records(paths[split], drawn)
    if difficulty == "plain":
        _write_confusable(worlds, questions, paths)
    return paths


def _write_confusable(worlds: dict[str, World], questions: dict[str, list[Question]], paths: dict[str, Path]) -> None:
    """Write the training and test questions of the learned selector."""
    confusable = confusable_questions(worlds["train"], "train")
    known = {question.id for question in confusable}
    others = [question for question in questions["train"] if question.id not in known]
    # Common ones first: for them, an answer without a search may be right where a search misleads.
    others = sorted(others, key=lambda question: not question.id.startswith(_COMMON))[:_OTHERS_FOR_SELECTION]
    write_records(paths["confusable_train"], [*confusable, *others])
    write_records(paths["confusable_test"], confusable_questions(worlds["test"], "test"))


def confusable_questions(world: World, split: str) -> list[Question]:
    """Every single-hop question of a rare world by `CONFUSABLE_RELATIONS`."""
    drawn = draw_questions(world, random.Random(0), {"single_hop": len(world.entities) * 2})  # more than exist, so all of them
    return [question.model_copy(update={"split": split}) for question in drawn if question.id.split(":")[-1] in CONFUSABLE_RELATIONS]


def demo_questions(seed: int, worlds: dict[str, World], difficulty: Difficulty = "plain") -> dict[str, list[Question]]:
    """The questions of each split. An entity that one split's questions name is neither named nor needed by another's."""
    hard = difficulty == "hard"
    rare_counts, common_counts = (HARD_COUNTS, HARD_COMMON_COUNTS) if hard else (RARE_COUNTS, COMMON_COUNTS)
    rng = random.Random(f"questions-{seed}")
    common = list(worlds["common"].entities)
    rng.shuffle(common)
    questions: dict[str, list[Question]] = {}
    for part, (split, counts) in enumerate(rare_counts.items()):
        # The common world is one for all splits, so its entities are dealt out: half to train, a quarter to each other split.
        dealt = set(common[part::4]) | (set(common[3::4]) if split == "train" else set())
        known = draw_questions(worlds["common"], rng, {"single_hop": common_counts[split]}, subjects=dealt)
        drawn = draw_questions(worlds[split], rng, counts) + known
        rng.shuffle(drawn)
        questions[split] = [question.model_copy(update={"split": split}) for question in drawn]
    if hard:
        labeled = round(LABELED_SHARE * len(questions["train"]))
        questions["train"], questions["unlabeled"] = questions["train"][:labeled], questions["train"][labeled:]
    return questions


def common_share(questions: list[Question]) -> float:
    """Share of questions about the common world, whose facts the base checkpoint has read."""
    return sum(question.id.startswith(_COMMON) for question in questions) / len(questions)
