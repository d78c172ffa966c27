"""What a decoder leaves behind: one trace schema for all methods, and the prediction that holds it."""

from refinery.llms.base import Generation
from refinery.records import Passage, Record, Step, Trajectory


class ScoredPassage(Passage):
    """A passage as a search returned it."""

    retrieval_score: float


class TraceStep(Record):
    """One thing that happened: `name` says what, `depth` how deep in the recursion or tree, `question` what it was about.

    `shortened` counts the passages that were cut to fit the model's context.
    """

    name: str
    depth: int
    question: str
    text: str | None = None
    passages: list[ScoredPassage] | None = None
    probabilities: dict[str, float] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    shortened: int | None = None


class Cost(Record):
    """What one question cost."""

    calls: int
    retrievals: int
    prefill_tokens: int
    decode_tokens: int


class Prediction(Record):
    """One answered question. `paths` are the finished trajectories of a tree decoder, `selected` its answer by each strategy."""

    question_id: str
    question: str
    answer: str
    trace: list[TraceStep]
    cost: Cost
    paths: list[Trajectory] = []
    selected: dict[str, str] = {}


def written_step(action: str, generation: Generation, *, opened_with: tuple[int, float], passages: list[Passage] | None = None) -> Step:
    """The step a model wrote, with the control token that opened it: ids and log-probabilities of both."""
    token_id, logprob = opened_with
    return Step(
        action=action,  # type: ignore[arg-type]
        text=generation.text,
        passages=passages or [],
        token_ids=[token_id, *generation.token_ids],
        logprobs=[logprob, *generation.logprobs],
    )
