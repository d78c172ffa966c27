"""`refinery.load(...).ask(...)` on the demo's checkpoint and on a chat server, from plain code and from event loops."""

import asyncio

import pytest

import refinery
from infer.decoders.base import Decoder
from refinery import LoadedPipeline, Passage, Question, RefineryError
from refinery.contract.records import write_records
from refinery.demo.teacher.server import serving
from refinery.errors import ArgumentError
from refinery.runtime.recipe import Recipe

FILMS = ("Dune", "Golden Harbor", "Silent Valley")
TEXTS = [f"Who directed {film}?" for film in FILMS]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """The demo's checkpoint behind `rag`, over three passages."""
    path = tmp_path_factory.mktemp("passages") / "passages.jsonl"
    write_records(path, [Passage(id=film, title=film, text=f"{film} is a film directed by Maria {film}.") for film in FILMS])
    with refinery.load("refinery/demo/checkpoint", retriever={"passages": path}, passages_per_query=1, max_new_tokens=8) as loaded:
        yield loaded


@pytest.fixture
def server():
    """A chat server that knows one answer, and refuses what it is asked about `film 3`."""

    def answer(prompt: str) -> str:
        if "film 3" in prompt:
            raise ConnectionResetError
        return "Maria"

    with serving(answer) as server:
        yield server


def served(server, **changes) -> LoadedPipeline:
    return refinery.load({"decoder": "direct", "endpoint": {"base_url": server.base_url, "model": "m", "max_tries": 1}}, **changes)


def test_an_answer_comes_with_its_trace_and_its_cost(pipeline):
    prediction = pipeline.ask("Who directed Golden Harbor?")
    assert prediction.answer
    assert [passage.id for passage in prediction.trace[0].passages] == ["Golden Harbor"]
    assert (prediction.cost.calls, prediction.cost.retrievals) == (1, 1)


def test_a_list_gives_a_list_in_its_order_and_the_answers_of_one_at_a_time(pipeline):
    answered = pipeline.ask(TEXTS)
    assert [(one.question_id, one.question) for one in answered] == [("1", TEXTS[0]), ("2", TEXTS[1]), ("3", TEXTS[2])]
    assert [one.answer for one in answered] == [pipeline.ask(text).answer for text in TEXTS]


def test_a_question_keeps_its_id_and_choices(pipeline):
    question = Question(id="mine", text="Who directed Dune?", choices=["Maria Dune", "Anna Lake"])
    (prediction,) = pipeline.ask([question])
    assert (prediction.question_id, prediction.question) == ("mine", "Who directed Dune?")


def test_the_sync_form_works_inside_a_running_loop(pipeline):
    async def cell() -> str:
        return pipeline.ask(TEXTS[0]).answer

    assert asyncio.run(cell()) == pipeline.ask(TEXTS[0]).answer


def test_questions_awaited_together_give_what_a_list_does(pipeline):
    async def together() -> list:
        return await asyncio.gather(*(pipeline.aask(text) for text in TEXTS))

    assert [one.answer for one in asyncio.run(together())] == [one.answer for one in pipeline.ask(TEXTS)]


def test_one_pipeline_serves_one_loop_after_another(server):
    async def ask(loaded: LoadedPipeline) -> str:
        return (await loaded.aask("Who directed Dune?")).answer

    with served(server) as loaded:
        assert [asyncio.run(ask(loaded)), asyncio.run(ask(loaded)), loaded.ask("Who?").answer] == ["Maria"] * 3


def test_it_is_loaded_and_closed_by_async_with(server):
    async def use() -> str:
        async with await refinery.aload({"decoder": "direct", "endpoint": {"base_url": server.base_url, "model": "m"}}) as loaded:
            return (await loaded.aask("Who?")).answer

    assert asyncio.run(use()) == "Maria"


def test_a_server_is_probed_from_inside_a_running_loop(server):
    async def cell() -> str:
        with served(server) as loaded:
            return loaded.ask("Who?").answer

    assert asyncio.run(cell()) == "Maria"


def test_an_error_is_raised_for_one_question_and_kept_for_one_of_a_list(server):
    with served(server) as loaded:
        with pytest.raises(RefineryError):
            loaded.ask("Who directed film 3?")
        first, second = loaded.ask(["Who directed film 3?", "Who directed film 4?"])
    assert (first.failed.partition(":")[0], second.failed, second.answer) == ("no_reply", None, "Maria")


def test_no_more_questions_are_decoded_at_once_than_the_recipe_says(server):
    with served(server, questions_in_flight=2) as loaded:
        loaded.ask([f"Who directed film {number}?" for number in range(10, 22)])
    assert server.peak_in_flight <= 2


@pytest.mark.parametrize("asked", ["", [" "]])
def test_an_empty_question_is_refused_in_one_line(pipeline, asked):
    with pytest.raises(RefineryError, match=r"^question 1: is empty\. Give it some text\.$"):
        pipeline.ask(asked)


def test_a_closed_pipeline_says_so(server):
    loaded = served(server)
    loaded.close()
    loaded.close()
    with pytest.raises(RefineryError, match="the pipeline is closed. Load it again"):
        loaded.ask("Who?")


def test_python_takes_a_decoder_itself(pipeline):
    async def decode(question, session, options):
        return session.prediction(f"{options.said} {question.text}")

    class Said(Recipe):
        said: str = "You asked:"

    with refinery.load(pipeline.recipe.model_dump(exclude={"decoder"}), decoder=Decoder(decode, Said), options={"said": "Q"}) as mine:
        assert mine.ask("Who?").answer == "Q Who?"


@pytest.mark.parametrize("given", [5, None, ["Who?", 5], {"text": "Who?"}, b"Who?"])
def test_what_is_no_question_is_an_error_of_ours(pipeline, given):
    with pytest.raises(ArgumentError, match="Give a"):
        pipeline.ask(given)


@pytest.mark.parametrize(
    "call",
    [
        lambda: refinery.load(5),
        lambda: refinery.load(None),
        lambda: refinery.load({"decoder": object(), "llm": {"base": "m"}}),
        lambda: refinery.score(5, [Question(id="1", text="q", answers=["a"])]),
        lambda: refinery.score([5], [Question(id="1", text="q", answers=["a"])]),
        lambda: refinery.score(["a"], 5),
        lambda: refinery.score(["a"], [Question(id="1", text="q", answers=["a"])], metrics=[5]),
        lambda: refinery.score(["a"], [Question(id="1", text="q", answers=["a"])], metrics="em.squad"),
        lambda: refinery.score(["a"], [Question(id="1", text="q", answers=["a"])], metrics=[lambda prediction, answers: 1 / 0]),
        lambda: refinery.label(5, task="relevance"),
        lambda: refinery.label(["Who?"], task=5),
        lambda: refinery.label(["Who?"], task="decomposition", teacher="m", output_dir=5),
        lambda: refinery.search(5, "Dune"),
        lambda: refinery.search("passages.jsonl", 5),
        lambda: refinery.search("passages.jsonl", "Dune", k="three"),
        lambda: refinery.train(5),
        lambda: refinery.train({"task": object()}),
    ],
)
def test_a_wrong_argument_is_an_error_of_ours(call):
    with pytest.raises(RefineryError) as raised:
        call()
    assert "\n" not in str(raised.value) or "missing" in str(raised.value)


def test_a_prediction_shows_itself_in_a_notebook_and_outside_text_stays_text(pipeline):
    prediction = pipeline.ask("Who directed Dune?")
    hostile = prediction.model_copy(update={"answer": "<script>alert(1)</script>\x1b[2J"})
    shown = hostile._repr_html_()
    assert "&lt;script&gt;" in shown
    assert not {"<script>", "\x1b"} & {part for part in ("<script>", "\x1b") if part in shown}
    assert "<i>retrieve</i> Who directed Dune?: Dune</div>" in shown
    assert "<summary>Dune</summary>Dune is a film directed by Maria Dune." in shown
