"""Tasks that a model learns. Each is one object in one file, with everything that training, inference and a model card need to know.

    from refinery.tasks.relevance import TASK
    prompt, reply = TASK.prompt_and_reply(label)  # the training example
    TASK.labels                                   # the labels whose probabilities inference reads

There are five kinds of tasks: a `Judge` gives one of two labels, a `Writer` writes a text, a `TrajectoryTask` teaches paths of steps, a
`PairTask` teaches which of two paths is better, and a `ChatTask` teaches the assistant's turns of conversations. A module outside the
project also declares its task as TASK, and a recipe names it, as in `task: my_lab.difficulty`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from refinery.contract.control_tokens import ControlToken
from refinery.contract.conversation import ChatRow
from refinery.contract.records import JudgeLabel, Passage, Record, Step, Trajectory, read_records
from refinery.prompts.render import Prompt
from refinery.runtime.files.hub_dataset import with_split
from refinery.runtime.recipes.plugins import PluginKind, find, find_installed

R = TypeVar("R", bound=Record)
J = TypeVar("J", bound=JudgeLabel)


@dataclass(frozen=True, slots=True)
class Card:
    """A task's text on a model card: the model's purpose, and how to run it. `{repository}` is the repository that it was pushed to.

    `program` is Python that uses the model alone, as `llm`. `loop` is the part of an infer recipe that names decoder and models, introduced
    by `loop_is`, with `passages` per search. `note` is a sentence for tasks without a loop.
    """

    purpose: str
    program: str = ""
    loop: str = ""
    loop_is: str = ""
    passages: int = 3
    note: str = ""


def _label(record: JudgeLabel) -> str:
    return f" {record.label}"


def _no_passages(record: Any, edit: Callable[[Passage], Passage]) -> Any:
    return record


@dataclass(frozen=True, kw_only=True)
class Task(Generic[R]):
    """The fields that all tasks have. A file declares one of the kinds below.

    `scores` are the metrics of a model on held-out rows. `card(recipe)` receives the values of the train recipe. `edit_passages` gives a
    record with each of its passages edited, which is used to shorten rows that are too long. `sub_model` says that the model plays a role
    next to other models, which may be adapters of the same base.
    """

    name: str
    record: type[R]
    scores: tuple[str, ...]
    card: Callable[[Mapping[str, Any]], Card]
    control_tokens: tuple[ControlToken, ...] = ()
    edit_passages: Callable[[R, Callable[[Passage], Passage]], R] = _no_passages
    read_file: Callable[[Path, type[R]], list[R]] = read_records
    sub_model: bool = False
    method: str = "sft"  # a file of train/methods, the default for recipes

    def read(self, path: Path) -> list[R]:
        """The records of a file, or of a dataset on the hub. Raises RecordError naming the file and line."""
        return self.read_file(with_split(path), self.record)


@dataclass(frozen=True, kw_only=True)
class PromptedTask(Task[R]):
    """A task whose record is one prompt with one reply.

    `prompt` gives the text that the model reads, and `reply` the text that it should write, beginning with the space or line break after
    the prompt, without the end-of-sequence token.
    """

    prompt: Callable[[R], Prompt | str]
    reply: Callable[[R], str]
    reply_kind: Literal["label", "answer", "query"]

    def prompt_and_reply(self, record: R) -> tuple[str, str]:
        """The prompt, as inference will render it, and the reply."""
        return self.prompt(record), self.reply(record)


@dataclass(frozen=True, kw_only=True)
class Judge(PromptedTask[J]):
    """A task with two labels, the positive one last, each with the space that separates it from its prompt.

    An encoder reads the prompt's `pair`. `sample(text)` is a sample record whose prompt has `text` as its last free text.
    `threshold_option` names the decoders' option for the probability at which the positive label is chosen.
    """

    labels: tuple[str, str]
    sample: Callable[[str], J]
    threshold_option: str | None = None
    reply_kind: Literal["label", "answer", "query"] = "label"
    scores: tuple[str, ...] = ("accuracy", "f1", "auc", "ece")
    sub_model: bool = True
    reply: Callable[[J], str] = _label


@dataclass(frozen=True, kw_only=True)
class Writer(PromptedTask[R]):
    """A task to write a text after a prompt. `score` compares a model's texts with the records, from 0 to 1, by names in `scores`."""

    score: Callable[[Sequence[str], Sequence[R]], dict[str, float]]
    reply_kind: Literal["label", "answer", "query"] = "answer"


@dataclass(frozen=True, kw_only=True)
class TrajectoryTask(Task[Trajectory]):
    """A task to write paths of steps with control tokens, for a generator that searches."""

    record: type[Trajectory] = Trajectory
    scores: tuple[str, ...] = ("action_validity", "stop_f1", "query_exact_match", "answer_exact_match")


@dataclass(frozen=True, kw_only=True)
class PairTask(Task[R]):
    """A task with two paths, `chosen` and `rejected`. A generator learns to make the first more likely."""

    scores: tuple[str, ...] = ("accuracy",)
    method: str = "dpo"


@dataclass(frozen=True, kw_only=True)
class ChatTask(Task[ChatRow]):
    """A task whose rows are whole conversations, of which the assistant's turns are learned."""

    record: type[ChatRow] = ChatRow
    scores: tuple[str, ...] = ("accuracy",)


def edit_steps(path: Trajectory, edit: Callable[[Passage], Passage]) -> Trajectory:
    """The path with each retrieved passage edited, in this turn and in earlier ones."""

    def edited(steps: Sequence[Step]) -> list[Step]:
        return [step.model_copy(update={"passages": [edit(passage) for passage in step.passages]}) for step in steps]

    history = [
        turn if isinstance(turn.reply, str) else turn.model_copy(update={"reply": edited(turn.reply)}) for turn in path.history or []
    ]
    return path.model_copy(update={"steps": edited(path.steps), "history": history or None})


def in_ra_isf(role: str, purpose: str, program: str) -> Callable[[Mapping[str, Any]], Card]:
    """The card of one of RA-ISF's three sub-models. As an adapter it plays its role in the loop, next to the other adapters."""

    def card(recipe: Mapping[str, Any]) -> Card:
        if recipe["strategy"] == "full" or recipe["family"] != "causal":
            return Card(purpose, program)
        loop = f"decoder: ra_isf\nllm:\n  base: {recipe['base']}\n  adapters:\n    {role}: {{repository}}"
        loop_is = "In RA-ISF's loop. The base model plays the roles without an adapter; add your adapters next to this one:"
        return Card(purpose, program, loop, loop_is, passages=5)

    return card


TASKS: PluginKind[Task[Any]] = PluginKind("task", "refinery.tasks", Task, "TASK")


def load_task(name: str) -> Task[Any]:
    """The task with the name in a recipe. Raises PluginError if there is no such task, or it is not a task."""
    return find(TASKS, name)


def task_of(record: Record) -> Task[Any] | None:
    """The shipped task with rows of this type."""
    tasks = (find_installed(TASKS, name) for name in TASKS.shipped())
    return next((task for task in tasks if task.record is type(record)), None)
