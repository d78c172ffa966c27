"""Answer every question with one decoder, thousands at once, and score the answers."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from infer.evaluation.evaluate import evaluate, total_cost
from infer.evaluation.scores import SCORES_FILE, has_gold, score
from infer.fitting import valid_text
from infer.known_model import warn_of_another_models_labels
from infer.outcomes import Outcomes, SearchHealth
from infer.provenance import fingerprints, prompts_now, provenance
from infer.recipe import InferRecipe
from infer.session import Session
from infer.shards import (
    AnswerLedger,
    Processes,
    attempts,
    delete_ledgers,
    last_outcomes,
    prompts_used,
    read_ledgers,
    wall_seconds,
)
from refinery.contract.choices import choice_question
from refinery.contract.control_tokens import check_manifest
from refinery.contract.records import Question, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RecipeError
from refinery.llms.served.capabilities import Need
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.questions.base import read_questions
from refinery.retrievers.base import Retriever, build_retriever
from refinery.retrievers.supporting import check_supporting
from refinery.runtime import plugins
from refinery.runtime.progress import Progress
from refinery.runtime.run_dir import RunDir, check_fingerprints, check_run, locked_run, open_run


def run(recipe: InferRecipe, *, resume: bool) -> dict[str, Any]:
    """Answer, write predictions with their traces, score. Returns what `metrics.json` holds.

    A question that fails has a row that says why; `resume` asks it again, also where the run has come to its end.
    """
    bench = InferBench(recipe)
    processes = Processes.launched()
    questions = read_questions(recipe.questions, reader=recipe.reader, limit=recipe.limit)
    known = fingerprints(recipe, questions, bench.options) if processes.is_main else {}
    finished = check_run(recipe, recipe.output_dir, resume=resume, fingerprints=known)
    if finished is not None and not finished.get("failed"):
        check_fingerprints(recipe.output_dir, finished["prompts"], prompts_now(finished["prompts"]))
        return finished
    check_supporting(questions, recipe.retriever)
    with locked_run(recipe.output_dir) if processes.is_main else nullcontext():
        bench.load()
        processes.wait()  # every process has checked the directory: from here on it is the main one's to write
        output = RunDir(recipe.output_dir)
        if processes.is_main:
            known = fingerprints(recipe, questions, bench.options) | {"retriever": getattr(bench.retriever, "revision", None)}
            output = open_run(recipe, recipe.output_dir, stage="infer", resume=resume, fingerprints=known)
        earlier = read_ledgers(output)
        check_fingerprints(output.path, prompts_used(earlier), prompts_now(prompts_used(earlier)))
        processes.wait()  # every process has read what is answered: from here on each adds to it
        answered = {row.prediction.question_id for row in earlier if row.prediction.failed is None}
        share = processes.share([question for question in questions if question.id not in answered])
        with AnswerLedger(output, processes.rank, attempt=attempts(earlier) + 1) as ledger:
            asyncio.run(_answer_all(bench, share, ledger))
        processes.wait()
        processes.part()
        return _finish(bench, questions, output) if processes.is_main else {}


def _finish(bench: "InferBench", questions: Sequence[Question], output: RunDir) -> dict[str, Any]:
    """Put the processes' answers together in question order, and score them. The ledgers stay as long as a question has no answer."""
    recipe, ledger = bench.recipe, read_ledgers(output)
    seconds, by_id = wall_seconds(ledger), last_outcomes(ledger)
    predictions = [by_id[question.id] for question in questions]
    write_records(output / PREDICTIONS_FILE, predictions)
    rows = score(recipe.name or recipe.decoder, questions, predictions)
    write_records(output / SCORES_FILE, rows)
    failed = Counter(prediction.failed.partition(":")[0] for prediction in predictions if prediction.failed)
    metrics = {
        "results": evaluate(rows, predictions, seconds=seconds, tokenizer=bench.llm.tokenizer if recipe.tokenizer else None),
        "questions": len(questions),
        "questions_without_gold_answers": sum(not has_gold(question) for question in questions),
        "failed": failed.total(),
        "failed_by_reason": dict(failed.most_common()),
        "cost": total_cost(predictions, seconds=seconds),
        **provenance(recipe, questions, bench.retriever),
        "endpoints": {role: llm.record() for role, llm in bench.endpoints().items()},
        "prompts": prompts_used(ledger),
    }
    output.write_metrics(metrics)
    if not failed:
        delete_ledgers(output)
    return metrics


class InferBench:
    """A recipe's decoder, checked before anything is loaded, and then its model and retriever."""

    def __init__(self, recipe: InferRecipe) -> None:
        self.recipe = recipe
        self.decoder = plugins.load("infer.decoders", recipe.decoder)
        self.options = recipe.decoder_options(recipe.where)
        if self.decoder.NEEDS_RETRIEVER and recipe.retriever is None:
            raise RecipeError(f"{recipe.where}: decoder '{recipe.decoder}' needs 'retriever' in the recipe.")
        # By role of a decoder with sub-models what an endpoint in that role must be able to do.
        self.roles = self.decoder.role_needs(self.options) if hasattr(self.decoder, "role_needs") else {}
        if unknown := set(recipe.sub_models) - set(self.roles):
            raise RecipeError(
                f"{recipe.where}: sub_models: decoder '{recipe.decoder}' has no role '{min(unknown)}'. "
                f"Roles: {', '.join(self.roles) or 'none'}."
            )
        required = self.decoder.required_roles(self.options) if hasattr(self.decoder, "required_roles") else ()
        if missing := set(required) - {*recipe.sub_models, *recipe.model.adapters}:
            role = min(missing)
            raise RecipeError(
                f"{recipe.where}: decoder '{recipe.decoder}' needs a model for role '{role}' with these options. "
                f"Name it by sub_models.{role}, or by adapters.{role} of the model."
            )
        self.llm: Any = None
        self.searches, self._outcomes = SearchHealth(), Outcomes()
        self.sub_models: dict[str, Any] = {}
        self.retriever: Retriever | None = None

    def load(self) -> None:
        """Build the retriever and load the model. Raises CheckpointError or LLMError when it lacks what the decoder needs."""
        from refinery.llms.build import build_llm, model_family

        if self.recipe.llm and hasattr(self.decoder, "check_family"):
            self.decoder.check_family(model_family(self.recipe.llm), self.options)
        if hasattr(self.decoder, "load"):
            self.decoder.load(self.options)
        self.retriever = build_retriever(self.recipe.retriever) if self.recipe.retriever else None
        self.llm = build_llm(self.recipe.model)
        self.sub_models = {role: build_llm(config) for role, config in self.recipe.sub_models.items()}
        for role, config in self.recipe.sub_models.items():
            if isinstance(config, ServedModelConfig):
                self.sub_models[role].require(f"{self.recipe.decoder}' in role '{role}", self.roles[role])
        if self.recipe.endpoint:
            self.llm.require(self.recipe.decoder, self._llm_needs())
        if tokenizer := self.recipe.tokenizer:
            check_manifest(tokenizer, self.llm.tokenizer, needed=getattr(self.decoder, "CONTROL_TOKENS", ()))
        warn_of_another_models_labels(self.recipe)

    def _llm_needs(self) -> frozenset[Need]:
        """What the model must be able to do for its own part and for the roles that it plays, bare or by an adapter."""
        own = self.decoder.llm_needs(self.options) if hasattr(self.decoder, "llm_needs") else frozenset[Need]()
        others = {*self.recipe.sub_models, *(set(getattr(self.decoder, "ADAPTER_ROLES", ())) - set(self.recipe.model.adapters))}
        return own.union(*(needs for role, needs in self.roles.items() if role not in others))

    async def answer(self, question: Question) -> Prediction:
        """Decode one question with its choices."""
        return await self._decode(self._tools(question), question)

    async def outcome(self, question: Question) -> Prediction:
        """The same, but an error that is the question's own becomes its outcome. Raises the errors that every question would meet."""
        session = self._tools(question)
        try:
            prediction = await self._decode(session, question)
        except Exception as error:
            ended = session.ended_by(self._outcomes.fault(question.id, error))
            return ended.model_copy(update={"question": question.text})
        self._outcomes.answered(prediction)
        return prediction

    def _tools(self, question: Question) -> Session:
        recipe = self.recipe
        asked = valid_text(choice_question(question) if question.choices else question.text)
        return Session(
            question=question.model_copy(update={"text": asked}),
            llm=self.llm,
            retriever=self.retriever,
            passages_per_query=recipe.passages_per_query,
            adapters=frozenset(recipe.model.adapters),
            sub_models=self.sub_models,
            max_new_tokens=recipe.max_new_tokens,
            keep_prompts=recipe.keep_prompts,
            answer_style=recipe.answer_style,
            searches=self.searches,
        )

    async def _decode(self, session: Session, question: Question) -> Prediction:
        prediction = await self.decoder.decode(session.readable(), session, self.options)
        return prediction.model_copy(update={"question": question.text})

    async def close(self) -> None:
        """Close the connections of endpoints."""
        for llm in self.endpoints().values():
            await llm.close()

    def endpoints(self) -> dict[str, Any]:
        """The models behind endpoints: sub-models by their role, the one that answers as `model`."""
        configs = {"model": self.recipe.model, **self.recipe.sub_models}
        llms = {"model": self.llm, **self.sub_models}
        return {role: llm for role, llm in llms.items() if isinstance(configs[role], ServedModelConfig)}


async def _answer_all(bench: InferBench, questions: Sequence[Question], ledger: AnswerLedger) -> None:
    """Decode with a bounded number of questions in flight; each prediction is on disk before the next question starts."""
    gate = asyncio.Semaphore(bench.recipe.questions_in_flight)
    calls = failed = 0
    title = f"infer {bench.recipe.name or bench.recipe.decoder}"
    with Progress(title, total=len(questions), beside=lambda: f"calls={calls}" + (f" failed={failed}" if failed else "")) as progress:

        async def answer_one(question: Question) -> None:
            nonlocal calls, failed
            async with gate:
                prediction = await bench.outcome(question)
            ledger.write(prediction)
            calls, failed = calls + prediction.cost.calls, failed + (prediction.failed is not None)
            progress.advance()

        try:
            async with asyncio.TaskGroup() as group:
                for question in questions:
                    group.create_task(answer_one(question))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await bench.close()
