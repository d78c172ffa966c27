"""What a decoder returns: one trace schema for all methods, and the prediction that contains it."""

from typing import Any

from refinery.contract.records import Passage, Record, Trajectory

PREDICTIONS_FILE = "predictions.jsonl"  # of a finished infer run, in the order of its questions
QUESTIONS_FILE = "questions.jsonl"  # of the same run: the questions that it answered


class ScoredPassage(Passage):
    """A passage that a search returned."""

    retrieval_score: float


class FilledPrompt(Record):
    """A file of refinery/prompts and the values that were filled in."""

    name: str
    values: dict[str, Any]


class ModuleOutput(Record):
    """What a module that ran alone wrote or judged, in one trace step.

    `texts` are what it wrote; `cited` holds the ids of the passages that each text cites. `labels` are its judgements, True for the
    positive label, with their `probabilities` if it gives them. `given` numbers the annotated sub-questions, from 0, whose answers it was
    told, and `step` is the one it was asked, None for the question itself. `unread` counts its replies that could not be read.

    `found` holds, by what was searched with, the ids that each search found, best first. `judged` is what a judge says of each text, None
    where its reply could not be read.
    """

    step: int | None = None
    given: list[int] = []
    texts: list[str] = []
    cited: list[list[str]] = []
    labels: list[bool] = []
    probabilities: list[float] = []
    unread: int = 0
    found: dict[str, list[list[str]]] = {}
    judged: list[bool | None] = []


class TraceStep(Record):
    """One event: `name` says what happened, `depth` is the depth in the recursion or tree, `question` is what it was about.

    `text` is the reply, and `role` names the sub-model that wrote it, if it was not the recipe's own model. `cut` is what the model wrote
    after its reply by continuing in the prompt's format. `token_ids` covers both, and the `reasoning` that a reasoning model wrote first.
    `shortened` counts the passages that were cut to fit the model's context. `prompt` is recorded if the recipe says so.
    `output` is present when a module runs alone (`refinery evaluate-modules`).
    """

    name: str
    depth: int
    question: str
    text: str | None = None
    role: str | None = None
    reasoning: str | None = None
    cut: str | None = None
    passages: list[ScoredPassage] | None = None
    probabilities: dict[str, float] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    shortened: int | None = None
    prompt: FilledPrompt | None = None
    output: ModuleOutput | None = None


class Cost(Record):
    """The cost of one question."""

    calls: int
    retrievals: int
    prefill_tokens: int
    decode_tokens: int


class Prediction(Record):
    """The result for one question. `paths` are a tree decoder's finished trajectories, `selected` its answer by each strategy.

    `failed` says why there is no answer or, after a failed search, why the answer is not final.
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
        """Whether the decoder finished."""
        return self.failed is None or bool(self.answer)
