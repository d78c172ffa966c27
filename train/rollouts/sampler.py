"""Answers of the model in training: sampled ones to learn from, and decoded ones that show what it has learned.

The engine runs on the very weights in training, in this process, and is made anew for each step; or the servers that `rollouts.server`
names answer, once they have read the weights.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infer.outcomes import Outcomes
from infer.pipeline import Pipeline
from infer.shared_models import Parts
from refinery.contract.records import Question
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction
from refinery.llms.base import LLM
from refinery.llms.build import ModelConfig
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.prompts.render import use_prompts
from refinery.runtime.concurrency.background_loop import run_in_background
from refinery.runtime.concurrency.gather import together
from train.rollouts.roles import pipeline_recipe, role_of, rollouts_of, system, systems
from train.rollouts.rollout import Rollout, opening
from train.rollouts.served_policy import ServedPolicy
from train.settings import TrainSettings

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


class RolloutSampler:
    """Samples and decodes the recipe's questions. Retrievers and the models beside the one in training are loaded once."""

    def __init__(self, recipe: TrainSettings) -> None:
        self._recipe, self._role, self._rollouts, self._settings = recipe, role_of(recipe), rollouts_of(recipe), recipe.grpo
        self._parts = _Parts(ModelConfig(base=recipe.base))
        self._pipelines: dict[str, Pipeline] = {}
        self._outcomes = Outcomes()
        self._served = ServedPolicy(self._rollouts.server, recipe) if self._rollouts.server else None

    def sample(
        self, model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, questions: Sequence[Question], *, key: str, first: int
    ) -> list[Rollout]:
        """One rollout for each of `questions`, in which each stands as often as it is sampled, the samples of a tree side by side.

        What is drawn depends on `key` and each rollout's number, the first of which is `first`; a server draws from its own numbers.
        Leaves the model in the mode it was in.
        """
        with self._engine(model, tokenizer) as llm:
            pipeline = self._pipeline("tree_" if self._settings.learn == "selection" else "", llm)
            return run_in_background(self._sampled(pipeline, llm, questions, key, first))

    def decode(
        self, model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, questions: Sequence[Question]
    ) -> dict[str, list[Prediction]]:
        """The answers of the model in training, by the prefix of each way in which it is decoded."""
        with self._engine(model, tokenizer) as llm:
            return {prefix: run_in_background(_answered(self._pipeline(prefix, llm), questions)) for prefix in systems(self._recipe)}

    async def _sampled(self, pipeline: Pipeline, llm: LLM, questions: Sequence[Question], key: str, first: int) -> list[Rollout]:
        size, places = self._settings.siblings, asyncio.Semaphore(self._rollouts.questions_in_flight)

        async def group(start: int) -> list[Rollout]:
            async with places:
                return await self._group(pipeline, llm, questions[start], key, first + start)

        groups = await together(group(start) for start in range(0, len(questions), size))
        return [rollout for rollouts in groups for rollout in rollouts]

    async def _group(self, pipeline: Pipeline, llm: LLM, question: Question, key: str, number: int) -> list[Rollout]:
        """The rollouts of one tree, whose first has the number; if they fail, so many that failed. Raises what fails all others too."""
        try:
            with use_prompts(pipeline.prompts):
                return await self._role.sample(pipeline, question, self._settings, key, number)
        except Exception as error:
            failed = self._outcomes.fault(question.id, error)
        return [Rollout(question, [opening(llm, question)], failed=failed)] * self._settings.siblings

    @contextmanager
    def _engine(self, model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer) -> Iterator[LLM]:
        if self._served is not None:
            served = self._served.llm(model, tokenizer)
            try:
                yield served
            finally:
                run_in_background(served.close())
            return
        from refinery.llms.engine.huggingface import HuggingFaceLLM

        training = model.training
        llm = HuggingFaceLLM(model, tokenizer, kv_tokens=self._rollouts.kv_tokens)
        limits = (self._recipe.max_length, llm.context_limit)
        llm.context_limit = min(limit for limit in limits if limit is not None)
        try:
            yield llm
        finally:
            llm.release()
            model.train(training)

    def _pipeline(self, prefix: str, llm: LLM) -> Pipeline:
        """The pipeline of one way to decode, with `llm` in the role that is trained."""
        self._parts.trained = llm
        if prefix not in self._pipelines:
            options = system(self._recipe, prefix)
            self._pipelines[prefix] = Pipeline(pipeline_recipe(self._recipe, self._parts.config, **options))
            self._pipelines[prefix].load(self._parts)
        pipeline = self._pipelines[prefix]
        self._role.play(pipeline, llm)
        return pipeline


def decode_checkpoint(recipe: TrainSettings, questions: Sequence[Question]) -> dict[str, list[Prediction]]:
    """The answers of the finished checkpoint, loaded back from disk, as `RolloutSampler.decode` gives those of the model in training."""
    trained = ModelConfig(base=str(recipe.output_dir), kv_tokens=rollouts_of(recipe).kv_tokens)
    answers: dict[str, list[Prediction]] = {}
    parts = Parts()
    for prefix, options in systems(recipe).items():
        pipeline = Pipeline(pipeline_recipe(recipe, trained, **options))
        pipeline.load(parts)
        answers[prefix] = run_in_background(_answered(pipeline, questions))
    return answers


async def _answered(pipeline: Pipeline, questions: Sequence[Question]) -> list[Prediction]:
    return await together(pipeline.outcome(question) for question in questions)


class _Parts(Parts):
    """The parts of the pipelines, with the model in training where `config` itself is named."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.trained: LLM | None = None

    def model(self, config: ModelConfig | ServedModelConfig) -> LLM:
        """The model in training, or a loaded one."""
        return self.trained if config is self.config and self.trained is not None else super().model(config)
