"""The recipe of `refinery iterate`: the stages of a round, and the stopping rule."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from refinery.questions.base import find_reader
from refinery.runtime.recipe import Recipe, read_values

# A stage's recipe, which may be followed by key=value.
StageWords = Annotated[list[str], Field(min_length=1)]


class Replay(Recipe):
    """Rows of an earlier teacher that every round trains on, in addition to its own."""

    rows: list[Path] = Field(min_length=1, description="files of the same task as the rows that `keep` writes")
    share: float = Field(
        default=1.0, description="how often a round has each of these rows: 0.5 a random half of them, another each round", gt=0
    )


class IterateRecipe(Recipe):
    """Rounds of sample, keep, train and evaluate, each an ordinary run of the stages."""

    output_dir: Path = Field(description="folder of the rounds; the same command continues it")
    start: str = Field(description="the checkpoint that the first round samples with")
    questions: list[Path] = Field(min_length=1, description="training questions with answers; none of them may be in validation or test")
    validation: list[Path] = Field(min_length=1, description="questions that decide after each round whether another one follows")
    test: list[Path] = Field(default=[], description="questions that the first checkpoint and the best round answer at the end")
    sample: StageWords = Field(description="an infer recipe: a tree, or `samples` with a `temperature`")
    keep: StageWords = Field(
        description="a distill recipe that makes rows of the samples: task traces for right paths, preferences for DPO"
    )
    train: StageWords = Field(description="the train recipe of a round")
    evaluate: dict[Annotated[str, Field(pattern=r"^\w+$")], StageWords] = Field(
        min_length=1, description="infer recipes by name; the first one's selected answers decide when to stop"
    )
    replay: Replay | None = Field(default=None, description="teacher's rows that every round is also trained on")
    train_from: Literal["first", "last"] = Field(
        default="first",
        description="first: each round trains the `base` of the train recipe anew; last: it goes on with the model of the round before",
    )
    model_key: str = Field(
        default="llm.base", description="where the infer recipes name the model that is trained, such as llm.adapters.relevance"
    )
    rounds: int = Field(default=3, description="the most rounds", ge=1)
    metric: str = Field(default="em.squad", description="the metric on validation that decides")
    min_gain: float = Field(default=0.0, description="percentage points by which a round must exceed the best one to count as better", ge=0)
    patience: int = Field(default=1, description="stop after so many rounds in a row that are not better", ge=1)
    seed: int = Field(default=0, description="of sampling and training; each round adds its number")
    accelerate: str | None = Field(
        default=None, description="launch sampling, training and evaluation with this accelerate file (a path or a shipped name)"
    )
    at_once: int = Field(default=1, description="how many runs of a round go at a time, if they do not need each other", ge=1)
    environment: dict[str, str] = Field(default={}, description="environment variables of every run, such as CUDA_VISIBLE_DEVICES")

    @field_validator("sample", "keep", "train")
    @classmethod
    def _names_a_recipe(cls, words: list[str], info: ValidationInfo) -> list[str]:
        if not words[0].endswith((".yaml", ".yml")):
            raise ValueError(f"begins with {words[0]!r}; write [RECIPE.yaml, key=value, ...]")
        return words

    @property
    def reader(self) -> str:
        """The schema of the questions, as the sampling recipe names it."""
        return str(self.values_of(self.sample).get("reader", "jsonl"))

    @property
    def trains_adapters(self) -> bool:
        """Whether a round's checkpoint is an adapter, which must be merged before another one is trained on it."""
        return self.values_of(self.train).get("strategy", "lora") != "full"

    def values_of(self, words: Sequence[str]) -> dict[str, object]:
        """The values of a stage's recipe. Raises RecipeError if it cannot be read."""
        return read_values(words[0], words[1:])

    def check(self, where: str) -> None:
        """Check that every recipe can be read, and the reader."""
        for words in (self.sample, self.keep, self.train, *self.evaluate.values()):
            self.values_of(words)
        with self.at("sample"):
            find_reader(self.reader)
