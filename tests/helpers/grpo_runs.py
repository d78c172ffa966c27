"""A tiny generator that has learned to search a little, and recipes that go on with it by GRPO."""

from pathlib import Path
from typing import Any

from helpers.family_rows import NAMES, SHORT_RUN, passage

from refinery.contract.records import Passage, Question, Step, Trajectory, write_records
from train.recipe import TrainRecipe
from train.run import run

OTHERS = ("Amber Road", "The Last Ferry")


def questions(names: tuple[str, ...] = NAMES) -> list[Question]:
    """Who directed each film. The answers differ, so that a search is needed."""
    return [Question(id=f"q{name[:3]}{i}", text=f"Who directed {name}?", answers=[name]) for i, name in enumerate(names)]


def trained_generator(folder: Path, base: Path, **changes: Any) -> Path:
    """A generator that writes whole paths of one search, for some of the questions."""
    rows = [
        Trajectory(
            question_id=name,
            question=f"Who directed {name}?",
            steps=[Step(action="rewrite", text=f"director of {name}", passages=[passage(name)]), Step(action="answer", text=name)],
        )
        for name in NAMES
    ]
    write_records(folder / "rows.jsonl", rows)
    values = {"task": "refinement", "base": str(base), "data": [folder / "rows.jsonl"], "output_dir": folder / "generator"}
    steps = {"strategy": "full", "max_steps": 40, "lr_scheduler_type": "constant", "warmup_steps": 0, "learning_rate": 5e-3}
    run(TrainRecipe.model_validate(SHORT_RUN | values | steps | changes), resume=False)
    return folder / "generator"


def grpo_values(folder: Path, generator: Path, *, grpo: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The values of a recipe of two steps, each of two questions with four rollouts."""
    write_records(folder / "questions.jsonl", questions())
    write_records(folder / "held_out.jsonl", questions(OTHERS))
    write_records(folder / "passages.jsonl", [*map(passage, (*NAMES, *OTHERS)), Passage(id="x", title="Lyon", text="A city in France.")])
    values = {
        "task": "refinement",
        "method": "grpo",
        "base": str(generator),
        "data": [str(folder / "questions.jsonl")],
        "output_dir": str(folder / "run"),
        "rollouts": {
            "retriever": {"passages": str(folder / "passages.jsonl")},
            "passages_per_query": 1,
            "max_new_tokens": 6,
            "options": {"max_depth": 2, "max_query_tokens": 8},
        },
        "grpo": {"num_generations": 4, "format_weight": 0.5, "search_cost": 0.1} | (grpo or {}),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_length": 256,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "dtype": "float32",
        "gradient_checkpointing": False,
        "lora_dropout": 0.0,
        "logging_steps": 1,
        "save_steps": 1,
    }
    return values | changes
