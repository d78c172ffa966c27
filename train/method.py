"""The way a task is learned: a method is one file of train/methods that declares a METHOD, or a module outside the project that does.

`task` names the task and `method` the way to learn it. A method names the kinds of task that it learns from, and gives the four functions
of a `Family`: the model, the rows, the trainer and the checkpoint.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from refinery.contract.segments import EncodedRow
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import RecipeError
from refinery.runtime.recipes.plugins import PluginKind, find
from refinery.tasks.base import ChatTask, Judge, PairTask, Task, TrajectoryTask, Writer
from train.settings import TrainSettings

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

_KINDS = {Judge: "labels", Writer: "texts", TrajectoryTask: "trajectories", PairTask: "pairs", ChatTask: "conversations"}


class Family(Protocol):
    """The functions that train a recipe: train/families/{causal,seq2seq,classifier}.py, and each method's own module."""

    def build_model(self, recipe: TrainSettings) -> tuple["PreTrainedModel | PeftModel", Tokenizer]:
        """(model, tokenizer) ready for the trainer."""
        ...

    def encode_rows(
        self, records: Sequence[Any], recipe: TrainSettings, tokenizer: Tokenizer
    ) -> tuple[Sequence[EncodedRow], dict[str, Any]]:
        """The rows to train on, and the treatment of the others (train/rows/length_filter.py)."""
        ...

    def build_trainer(
        self, model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, rows: Sequence[EncodedRow], recipe: TrainSettings
    ) -> Any:
        """The transformers Trainer over the rows."""
        ...

    def save_model(
        self,
        model: "PreTrainedModel | PeftModel",
        tokenizer: Tokenizer,
        recipe: TrainSettings,
        folder: Path,
        state_dict: dict[str, Any] | None = None,
    ) -> None:
        """Write the checkpoint that inference loads by itself; `state_dict` holds the weights if the model is split over processes."""
        ...


def _nothing(recipe: TrainSettings) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Method:
    """A training method. `learns_from` are the kinds of task that it accepts; `family(recipe)` gives the functions that train one.

    A method whose rows are not those of its task reads them with `read_file(path)`, and then scores the finished checkpoint with
    `evaluate(recipe)`, by the names in `scores`. `check(recipe)` raises RecipeError for unsupported settings, and `plan(recipe, launch)`
    gives the lines of `--dry-run`.
    """

    family: Callable[[TrainSettings], Family]
    learns_from: tuple[type[Task[Any]], ...] = (Judge, Writer, TrajectoryTask, ChatTask)
    scores: tuple[str, ...] = ()
    read_file: Callable[[Path], list[Any]] | None = None
    check: Callable[[TrainSettings], None] = _nothing
    evaluate: Callable[[Any], dict[str, Any]] | None = None
    plan: Callable[[Any, Any], list[str]] | None = None


METHODS = PluginKind("method", "train.methods", Method, "METHOD", "family", ("recipe",), Method)


def find_method(name: str) -> Method:
    """The method with the name in a recipe. Raises PluginError."""
    return find(METHODS, name)


def method_of(recipe: TrainSettings) -> Method:
    """The recipe's method, or its task's default. Raises PluginError if it does not exist, and RecipeError if it cannot learn the task."""
    task, name = recipe.learned, recipe.method or recipe.learned.method
    method = find_method(name)
    if isinstance(task, method.learns_from):
        return method
    taken = ", ".join(_KINDS[kind] for kind in method.learns_from)
    given = next(what for kind, what in _KINDS.items() if isinstance(task, kind))
    raise RecipeError(f"method '{name}': learns from {taken}, and task '{recipe.task}' gives {given}. Leave it out, or name another.")


def load_family(recipe: TrainSettings) -> Family:
    """The functions that train the recipe: the method's own, or for fine-tuning those of the model family."""
    return method_of(recipe).family(recipe)
