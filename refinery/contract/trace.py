"""What a decoder leaves behind: one trace schema for all methods, and the prediction that holds it."""

from typing import Any

from refinery.contract.records import Passage, Record, Trajectory

PREDICTIONS_FILE = "predictions.jsonl"  # of a finished infer run, in the order of its questions


class ScoredPassage(Passage):
    """A passage as a search returned it."""

    retrieval_score: float


class FilledPrompt(Record):
    """A file of refinery/prompts and what was filled into it."""

    name: str
    values: dict[str, Any]


class TraceStep(Record):
    """One thing that happened: `name` says what, `depth` how deep in the recursion or tree, `question` what it was about.

    `text` is a reply up to where it went on in the prompt's format, and `cut` is what it went on with; `token_ids` are those of both,
    and of the `reasoning` that a reasoning model wrote first.
    `shortened` counts the passages that were cut to fit the model's context; `prompt` is kept where the recipe asks for it.
    """

    name: str
    depth: int
    question: str
    text: str | None = None
    reasoning: str | None = None
    cut: str | None = None
    passages: list[ScoredPassage] | None = None
    probabilities: dict[str, float] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    shortened: int | None = None
    prompt: FilledPrompt | None = None


class Cost(Record):
    """What one question cost."""

    calls: int
    retrievals: int
    prefill_tokens: int
    decode_tokens: int


class Prediction(Record):
    """What became of one question. `paths` are the finished trajectories of a tree decoder, `selected` its answer by each strategy.

    `failed` says why it has no answer, or, where a search could not be made, why the answer there is does not count as final.
    """

    question_id: str
    question: str
    answer: str
    trace: list[TraceStep]
    cost: Cost
    paths: list[Trajectory] = []
    selected: dict[str, str] = {}
    failed: str | None = None

    @property
    def has_answer(self) -> bool:
        """Whether the decoder came to its end."""
        return self.failed is None or bool(self.answer)
