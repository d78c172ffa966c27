"""Let an LLM judge the answers of a finished run (MIGRES Sec. 4.1 and Table 15), and store every reply.

The judge sees each distinct answer once, even if several of the run's systems gave it. Its replies are stored in `judgements.jsonl`, so
judging again asks only about new answers, and `refinery rescore` does not need the judge.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from infer.evaluation.finished_runs import open_stored
from infer.evaluation.rescore import rescore
from infer.evaluation.scores import JUDGEMENTS_FILE, JudgedAnswer, read_judgements
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.errors import RunDirError
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest
from refinery.llms.served.replies.bare_reply import yes_or_no
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.llms.served.transport.client import EndpointClient
from refinery.prompts.render import prompt_hash, render_prompt
from refinery.runtime.concurrency.background_loop import run_anywhere
from refinery.runtime.concurrency.gather import each
from refinery.runtime.run.progress import Progress

_log = logging.getLogger(__name__)


def judge(run: Path, config: EndpointConfig) -> dict[str, Any]:
    """Ask the judge about every answer it has not judged yet, and score the run again. Returns the metrics.

    Raises RunDirError if a different judge or prompt has judged the run, and UnusableEndpoint if the judge does not answer; its replies
    so far are stored.
    """
    stored = open_stored(run)
    known = read_judgements(run)
    _check_same_judge(run, known.values(), config)

    def unjudged() -> Iterator[tuple[Question, str]]:
        for question, prediction in stored.answers():
            for answer in _answers(prediction):
                if question.answers and (question.id, answer) not in known:
                    yield question, answer

    total = sum(1 for _ in unjudged())
    run_anywhere(_ask_all(unjudged(), total, config, run / JUDGEMENTS_FILE))
    return rescore(run)


def _check_same_judge(run: Path, known: Iterable[JudgedAnswer], config: EndpointConfig) -> None:
    for other in known:
        if (other.model, other.prompt) != (config.model, prompt_hash("judge")):
            raise RunDirError(
                f"{run / JUDGEMENTS_FILE}: contains replies of judge '{other.model}' (prompt {other.prompt}). "
                f"Replies of two judges cannot be mixed. Remove the file to let '{config.model}' judge everything."
            )


def _answers(prediction: Prediction | None) -> list[str]:
    """The distinct answers of the run's systems; empty answers are left out, because they are wrong without a judge."""
    if prediction is None:
        return []
    return [answer for answer in dict.fromkeys((prediction.answer, *prediction.selected.values())) if answer.strip()]


async def _ask_all(asked: Iterable[tuple[Question, str]], total: int, config: EndpointConfig, path: Path) -> None:
    endpoint = EndpointClient(config)
    with path.open("a", encoding="utf-8") as file, Progress("judge", total=total) as progress:

        async def ask(of: tuple[Question, str]) -> None:
            if (said := await _ask(*of, endpoint)) is None:
                unanswered.append(of[0].id)
            else:
                file.write(said.model_dump_json() + "\n")
                file.flush()
            progress.advance()

        unanswered = list[str]()
        try:
            await each(asked, ask, at_once=4 * config.calls_in_flight)
        finally:
            await endpoint.close()
    if unanswered:
        _log.warning("the judge did not reply about %d answers (the first: %s). Judge the run again.", len(unanswered), unanswered[0])


async def _ask(question: Question, answer: str, endpoint: EndpointClient) -> JudgedAnswer | None:
    """What the judge says, or that it withholds it; None if there was no reply, which it may give later."""
    prompt = render_prompt("judge", question=question.text, prediction=answer, answer=_ground_truth(question))
    try:
        reply = (await endpoint.reply(ChatRequest(b"", (("user", prompt),)))).text
    except RefusedRequest as error:
        if error.reason != "refused":
            return None
        reply = f"(no reply: {error})"
    return JudgedAnswer(
        question_id=question.id,
        answer=answer,
        reply=reply,
        implied=yes_or_no(reply),  # neither counts as wrong and is reported
        model=endpoint.config.model,
        prompt=prompt_hash("judge"),
    )


def _ground_truth(question: Question) -> str:
    """The gold answers; for a multiple-choice question the letter with its text."""
    if not question.choices:
        return " / ".join(question.answers)
    return " / ".join(f"{letter}. {question.choices[ascii_uppercase.index(letter)]}" for letter in question.answers)
