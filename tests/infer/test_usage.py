"""What a run shows while its questions are still open."""

import asyncio
import threading

from helpers.scripted_server import chat_reply, scripted

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from refinery.contract.records import Question


def test_open_questions_count_before_they_are_answered():
    asked, released = threading.Event(), threading.Event()

    def answer(body):
        asked.set()
        released.wait(30)
        return 200, chat_reply("France")

    async def check(pipeline: Pipeline) -> None:
        question = asyncio.ensure_future(pipeline.outcome(Question(id="q", text="Where is Lyon?")))
        assert await asyncio.to_thread(asked.wait, 30)
        assert (pipeline.num_open, pipeline.usage().calls) == (1, 1)
        released.set()
        prediction = await question
        used = pipeline.usage()
        assert (pipeline.num_open, used.calls, used.decode_tokens) == (0, 1, prediction.cost.decode_tokens)
        await pipeline.close()

    with scripted(answer) as server:
        recipe = PipelineRecipe.model_validate({"decoder": "direct", "endpoint": {"base_url": server.base_url, "model": "m"}})
        pipeline = Pipeline(recipe)
        pipeline.load()
        asyncio.run(check(pipeline))
