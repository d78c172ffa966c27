"""What tests of a served decoder share: passages, a question to the real `openai` client, and a decoder that is one function."""

import time

from infer.decoders.base import Decoder
from refinery.contract.records import Passage
from refinery.runtime.recipe import Recipe

FILMS = {"Amber Road": "Ada Quist", "Birch Hollow": "Ben Orlow", "Cedar Falls": "Cleo Marn", "Dune Harbour": "Dan Ferrow"}
PASSAGES = [Passage(id=film, title=film, text=f"{film} is a film by {maker}.") for film, maker in FILMS.items()]
KEY = "sk-of-a-test"


def ask(client, question="Who made Cedar Falls?", **values):
    return client.chat.completions.create(**{"model": "rag", "messages": [{"role": "user", "content": question}]} | values)


def slow_decoder(answer):
    """A decoder that is `answer(question, tools)` and nothing else."""

    async def decode(question, session, options):
        return session.prediction(await answer(question, session) or "done")

    return Decoder(decode, Recipe)


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
