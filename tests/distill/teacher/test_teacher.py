"""What the teacher asks for, what it keeps, and what it asks for again; the transport is scripted, the store is real."""

import asyncio
import contextlib
import hashlib
import json
import sqlite3
from pathlib import Path

import pytest
from pydantic import BaseModel

from distill.teacher.teacher import RejectedRow, RequestLog, Teacher
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.paid.budget import Budget
from refinery.llms.served.paid.paid_replies import persist_in
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.stores.sqlite import SqliteStore


class Answer(BaseModel):
    answer: str


class Other(BaseModel):
    answer: str
    reason: str = ""


class Scripted:
    """Answers with one text after the other, the last one again and again."""

    retries = in_flight = 0
    store: SqliteStore

    def __init__(self, *texts: str, finish_reason: str = "stop") -> None:
        self.texts, self.finish_reason = list(texts), finish_reason
        self.requests: list[ChatRequest] = []

    async def reply(self, request: ChatRequest) -> Reply:
        self.requests.append(request)
        await self.answered()
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        reply = Reply(text, self.finish_reason, f"r{len(self.requests)}", 10, 5, model="m", max_tokens=50)
        await persist_in(self.store)(request, reply)
        return reply

    async def answered(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        return


def ask(folder: Path, transport: Scripted, *prompts: str, schema=Answer, rollouts=(0,), **config):
    """Ask each prompt under each rollout, all at once, with a teacher of its own; outcomes in order."""
    endpoint = EndpointConfig(**{"model": "m", "base_url": "http://127.0.0.1:1/v1", "max_tokens": 50} | config)

    async def run():
        store = transport.store = SqliteStore(folder / "effects.sqlite")
        with contextlib.closing(store):
            teacher = Teacher(endpoint, store, transport, Budget(endpoint, None))
            calls = [teacher.ask(prompt, schema, RequestLog(), rollout=rollout) for prompt in prompts for rollout in rollouts]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            await teacher.close()
        return outcomes

    return asyncio.run(run())


GOOD = '{"answer": "Lyon"}'


def test_equal_requests_in_flight_are_sent_once(tmp_path):
    transport = Scripted(GOOD)
    assert ask(tmp_path, transport, "Where?", "Where?", "Where?") == [Answer(answer="Lyon")] * 3
    assert len(transport.requests) == 1


def test_each_rollout_is_a_sample_of_its_own(tmp_path):
    transport = Scripted('{"answer": "Lyon"}', '{"answer": "Paris"}')
    assert [reply.answer for reply in ask(tmp_path, transport, "Where?", rollouts=(0, 1))] == ["Lyon", "Paris"]
    assert [reply.answer for reply in ask(tmp_path, Scripted("no"), "Where?", rollouts=(0, 1))] == ["Lyon", "Paris"]


@pytest.mark.parametrize(
    ("prompt", "schema", "config"),
    [
        ("Where is it?", Answer, {}),
        ("Where?", Other, {}),
        ("Where?", Answer, {"model": "n"}),
        ("Where?", Answer, {"temperature": 0.7}),
        ("Where?", Answer, {"base_url": None}),  # OpenAI's model of that name
        ("Where?", Answer, {"azure_api_version": "2024-06-01"}),
        ("Where?", Answer, {"top_p": 0.9}),
        ("Where?", Answer, {"seed": 0}),
        ("Where?", Answer, {"reasoning_effort": "low"}),
        ("Where?", Answer, {"enable_thinking": False}),
        ("Where?", Answer, {"extra_body": {"top_k": 20}}),
    ],
)
def test_whatever_can_change_a_reply_is_in_its_key(tmp_path, prompt, schema, config):
    ask(tmp_path, Scripted(GOOD), "Where?")
    transport = Scripted(GOOD)
    ask(tmp_path, transport, prompt, schema=schema, **config)
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    "config",
    [
        {"calls_in_flight": 3},
        {"max_tries": 2},
        {"timeout_seconds": 5.0},
        {"max_tokens": 500},
        {"reasoning_tokens": 4000},
        {"max_tokens_name": "max_completion_tokens"},
        {"base_url": "http://127.0.0.1:2/v1"},
        {"base_url": ["http://another.example/v1", "http://127.0.0.1:1/v1"]},
    ],
)
def test_what_cannot_change_a_whole_reply_is_not(tmp_path, config):
    ask(tmp_path, Scripted(GOOD), "Where?")
    transport = Scripted(GOOD)
    assert ask(tmp_path, transport, "Where?", **config) == [Answer(answer="Lyon")]
    assert transport.requests == []


def test_what_a_store_without_digests_holds_is_not_paid_again(tmp_path):
    named = ["reply", "['http://127.0.0.1:1/v1']", "m", 0.0, Answer.model_json_schema()]  # keys held the address then
    frame = hashlib.blake2b(json.dumps(named, sort_keys=True).encode(), digest_size=16).digest()
    key = hashlib.blake2b(frame + b"user:0:6:Where?", digest_size=16).digest()
    with contextlib.closing(sqlite3.connect(tmp_path / "effects.sqlite")) as old, old:
        old.execute("CREATE TABLE effects (key BLOB PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        old.execute("INSERT INTO effects VALUES (?, ?)", (key, json.dumps([GOOD, "stop", "r", 10, 5, "m", 50, 0])))
    transport = Scripted(GOOD)
    assert ask(tmp_path, transport, "Where?", "When?") == [Answer(answer="Lyon")] * 2
    assert [request.messages[0][1] for request in transport.requests] == ["When?"]


def test_a_reply_that_was_cut_is_asked_for_again_only_under_a_higher_limit(tmp_path):
    cut = Scripted('{"answer": "Ly', finish_reason="length")
    assert [type(outcome) for outcome in ask(tmp_path, cut, "Where?")] == [RejectedRow]
    again = Scripted(GOOD)
    assert [outcome.reason for outcome in ask(tmp_path, again, "Where?")] == ["truncated"]
    assert again.requests == []
    assert ask(tmp_path, again, "Where?", max_tokens=100) == [Answer(answer="Lyon")]


@pytest.mark.parametrize("rest", ["\n" * 40, " \t" * 30, '{"answer": "Lyon"}{"answer"'], ids=["line breaks", "blanks", "repeated"])
def test_a_reply_that_was_cut_after_its_object_is_read_and_not_paid_again(tmp_path, rest):
    assert ask(tmp_path, Scripted(GOOD + rest, finish_reason="length"), "Where?") == [Answer(answer="Lyon")]
    again = Scripted(GOOD)
    assert ask(tmp_path, again, "Where?", max_tokens=100) == [Answer(answer="Lyon")]
    assert again.requests == []


def test_a_reply_that_was_all_reasoning_is_asked_for_again_with_room_for_it(tmp_path):
    assert [outcome.reason for outcome in ask(tmp_path, Scripted("", finish_reason="length"), "Where?")] == ["only_reasoning"]
    assert ask(tmp_path, Scripted(GOOD), "Where?", reasoning_tokens=100) == [Answer(answer="Lyon")]


def test_a_correction_turn_shows_the_reply_and_what_is_wrong_with_it(tmp_path):
    transport = Scripted('{"anser": "Lyon"}', GOOD)
    assert ask(tmp_path, transport, "Where?") == [Answer(answer="Lyon")]
    roles = [role for role, _ in transport.requests[1].messages]
    assert roles == ["user", "assistant", "user"]
    assert transport.requests[1].messages[1][1] == '{"anser": "Lyon"}'
    assert "field 'answer': Field required" in transport.requests[1].messages[2][1]


def test_an_object_without_its_end_is_not_mended(tmp_path):
    transport = Scripted('{"answer": "Ly', GOOD)
    assert ask(tmp_path, transport, "Where?") == [Answer(answer="Lyon")]
    assert len(transport.requests) == 2


def test_a_prompt_can_hold_no_more_tokens_than_were_reserved_for_it():
    request = ChatRequest(b"", (("user", "Wo liegt München? 東京 🗼"),), Answer.model_json_schema())
    assert request.most_prompt_tokens() >= len("Wo liegt München? 東京 🗼".encode())


class Held(Scripted):
    """Answers when it is let; `failing` in place of an answer."""

    def __init__(self, failing: Exception | None = None) -> None:
        super().__init__(GOOD)
        self.failing, self.let = failing, asyncio.Event()

    async def answered(self) -> None:
        await self.let.wait()
        if self.failing:
            raise self.failing


def ask_twice(folder: Path, transport: Held, between) -> list:
    """Two rows ask the same; `between(first)` is called with the task of the first while both wait."""
    endpoint = EndpointConfig(model="m", base_url="http://127.0.0.1:1/v1", max_tokens=50)

    async def run():
        with contextlib.closing(SqliteStore(folder / "effects.sqlite")) as store:
            transport.store = store
            teacher = Teacher(endpoint, store, transport, Budget(endpoint, None))
            rows = [asyncio.ensure_future(teacher.ask("Where?", Answer, RequestLog())) for _ in range(2)]
            await asyncio.sleep(0.01)
            between(rows[0])
            transport.let.set()
            return await asyncio.gather(*rows, return_exceptions=True)

    return asyncio.run(run())


def test_where_the_row_that_asked_is_cancelled_its_twin_asks(tmp_path):
    transport = Held()
    cancelled, reply = ask_twice(tmp_path, transport, lambda first: first.cancel())
    assert (type(cancelled), reply) == (asyncio.CancelledError, Answer(answer="Lyon"))
    assert len(transport.requests) == 2


def test_a_request_that_fails_fails_for_every_row_that_waits_for_it(tmp_path):
    transport = Held(RefusedRequest("status 400: no"))
    assert [outcome.reason for outcome in ask_twice(tmp_path, transport, lambda first: None)] == ["refused", "refused"]
    assert len(transport.requests) == 1


def test_a_value_is_read_as_soon_as_it_is_kept(tmp_path):
    async def run(store: SqliteStore) -> list:
        found = [store.get(b"key")]
        for value in (1, 2):
            await store.put(b"key", value)
            found.append(store.get(b"key"))
        return found

    with contextlib.closing(SqliteStore(tmp_path / "effects.sqlite")) as store:
        assert asyncio.run(run(store)) == [None, 1, 2]


def test_reading_does_not_keep_the_stores_log_from_being_emptied(tmp_path):
    async def run(store: SqliteStore) -> int:
        for number in range(40):
            store.get(b"nothing")
            await asyncio.gather(*(store.put(b"%d %d" % (number, one), "x" * 4000) for one in range(100)))
        return (tmp_path / "effects.sqlite-wal").stat().st_size

    with contextlib.closing(SqliteStore(tmp_path / "effects.sqlite")) as store:
        assert asyncio.run(run(store)) < 40 * 100 * 4000 * 3 / 4
