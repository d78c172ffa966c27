"""A user's own prompts: what is refused before anything is rendered from them, and what a text can reach."""

import asyncio

import pytest

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.records import Passage
from refinery.contract.segments import encode_text
from refinery.errors import RecipeError
from refinery.prompts.custom import may_replace, own_prompts
from refinery.prompts.files import SHIPPED, shipped_files
from refinery.prompts.render import prompt_hash, render_prompt, use_prompts
from refinery.prompts.replies import student_prompt
from refinery.prompts.stops import stop_texts
from refinery.prompts.variables import variable, variables

TOKEN = RQ_RAG[0].token
EACH = "teacher_relevance_each.jinja"
PASSAGE = Passage(id="1", title="Lyon", text="A city.")


@pytest.fixture
def folder(tmp_path):
    """Write one file into a folder of prompts, with other files by their names."""

    def write(name: str, text: str | bytes, **others: str):
        made = tmp_path / "mine"
        made.mkdir()
        (made / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        for other, content in others.items():
            (made / f"{other}.jinja").write_text(content)
        return made

    return write


def refusal(folder) -> str:
    """The one line that refuses a folder, without the folder's path."""
    with pytest.raises(RecipeError) as raised:
        own_prompts(folder)
    line = str(raised.value)
    assert len(line.splitlines()) == 1
    return line.removeprefix(f"{folder}/")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("teacher_relevence.jinja", "", "teacher_relevence.jinja: no prompt has this file name. Did you mean 'teacher_relevance.jinja'?"),
        ("teacher_relevance.txt", "", "teacher_relevance.txt: no prompt has this file name."),
        ("relevance.jinja", "", "relevance.jinja: cannot be replaced, because models are trained on the text that ships."),
        ("rq_rag_chat.jinja", "", "rq_rag_chat.jinja: cannot be replaced, because models are trained"),
        ("self_rag.jinja", "", "self_rag.jinja: cannot be replaced, because models are trained"),
        ("judge.jinja", "", "judge.jinja: cannot be replaced, because scores of two texts cannot be compared."),
        (EACH, b"\xff", f"{EACH}: not UTF-8 at byte 0. Save the file as UTF-8."),
        (EACH, "{{ question }}\n{% if %}", f"{EACH}:2: Expected an expression, got 'end of statement block'"),
        (EACH, "{{ question }}\n{{ question", f"{EACH}:2: unexpected end of template"),
        (EACH, "{{ question }}\n{{ question | shout }}", f"{EACH}:2: No filter named 'shout'."),
        (EACH, "{{ question }}\n{{ question | random }}", f"{EACH}:2: No filter named 'random'."),
        (
            EACH,
            "{{ qestion }}",
            f"{EACH}:1: there is no variable 'qestion'. Did you mean 'question'? Available: ",
        ),
        (EACH, "{{ question }}\n", f"{EACH}:1: ends without {{{{ passage }}}}, a passage, with `title` and `text`. Show it."),
        (EACH, "{% if question %}{{ passage.text }}{% endif %}", None),
        (EACH, "{{ question }}\n\n{{ passage.titel }}", f"{EACH}:3: cannot be rendered: 'refinery.contract.records.Passage object' has no"),
        (EACH, "{{ question }}{{ passage.text }}\n{{ 1 // 0 }}", f"{EACH}:2: cannot be rendered: integer division or modulo by zero"),
        (EACH, "{{ question }}\n{% include question %}", f"{EACH}:2: only a prompt can be included, by its file name in quotes."),
        (EACH, "{% include '/etc/passwd' %}", f"{EACH}:1: only a prompt can be included"),
        (EACH, "{% include '../render.py' %}", f"{EACH}:1: only a prompt can be included"),
        (EACH, f"{{{{ question }}}}\n{{% include '{EACH}' %}}", f"{EACH}:2: {EACH} includes {EACH} again, so the text has no end."),
        (EACH, "{{ range(3) }}", f"{EACH}:1: there is no variable 'range'."),
        ("demonstrations.jinja", "nothing", "does not export the requested name 'worked'"),
        ("answer_style.jinja", "{{ question }}{{ answer_style }}", "answer_style.jinja:1: cannot be rendered: 'answer_style' is undefined"),
    ],
)
def test_a_text_that_cannot_be_used_is_one_line_that_names_file_and_line(folder, name, text, expected):
    made = folder(name, text)
    if expected is None:
        assert own_prompts(made).own.keys() == {name.removesuffix(".jinja")}
    else:
        assert expected in refusal(made)


@pytest.mark.parametrize(
    "attempt",
    [
        "''.__class__.__mro__",
        "passage.parse_file('/etc/passwd')",
        "passage.model_copy()",
        "passage['__class__']",
        "passage | attr('__class__')",
        "'{0.__class__.__mro__}'.format(passage)",
        "[passage] | map(attribute='__class__') | first",
        "loop.__init__.__globals__",
        "self.__init__",
        "question.join.__self__.__class__",
        "cycler.__init__",
    ],
)
def test_a_text_reaches_nothing_but_what_fills_it_in(folder, attempt):
    made = folder(EACH, f"{{{{ question }}}} {{{{ passage.text }}}}\n{{% for _ in [1] %}}{{{{ {attempt} }}}}{{% endfor %}}")
    assert f"{EACH}:2: " in refusal(made)


def test_files_that_include_each_other_are_refused(folder):
    made = folder("answer_direct.jinja", "{% include 'answer_style.jinja' %}", answer_style="{% include 'answer_direct.jinja' %}")
    assert refusal(made) == "answer_direct.jinja:1: answer_style.jinja includes answer_direct.jinja again, so the text has no end."


@pytest.mark.parametrize("make", [False, True])
def test_a_folder_without_prompts_is_refused(tmp_path, make):
    if make:
        (tmp_path / "mine").mkdir()
    with pytest.raises(RecipeError, match=rf"^{tmp_path}/mine: .*`refinery prompts"):
        own_prompts(tmp_path / "mine")


def test_every_prompt_that_may_be_replaced_can_be(tmp_path):
    for name in filter(may_replace, shipped_files()):
        (tmp_path / f"{name}.jinja").write_text(SHIPPED.text(name) + "\nEnd")
    prompts = own_prompts(tmp_path)
    assert prompts.own.keys() == set(filter(may_replace, shipped_files()))
    assert not {name for name in prompts.own if prompts.hash(name) == SHIPPED.hash(name)}


@pytest.mark.parametrize("name", filter(may_replace, shipped_files()))
def test_the_sandbox_renders_the_shipped_text_alike(folder, name):
    prompts = own_prompts(folder("teacher_correction.jinja", "Again: {{ fault }}"))
    values = {one: variable(name, one).value for one in variables(name, SHIPPED)}
    assert name == "teacher_correction" or prompts.render(name, values) == SHIPPED.render(name, values)


def test_own_text_is_rendered_in_its_block_and_in_tasks_started_there_alone(folder):
    prompts = own_prompts(folder("answer_direct.jinja", "Say it. {{ question }}"))
    shipped, shipped_hash = render_prompt("answer_direct", question="Who?"), prompt_hash("answer_direct")

    async def both() -> list[str]:
        async def one(files) -> str:
            with use_prompts(files):
                await asyncio.sleep(0)
                return render_prompt("answer_direct", question="Who?")

        return list(await asyncio.gather(one(prompts), one(None)))

    assert asyncio.run(both()) == ["Say it. Who?", shipped]
    with use_prompts(prompts):
        assert prompt_hash("answer_direct") != shipped_hash
        assert prompt_hash("closed_book_few") != SHIPPED.hash("closed_book_few")  # which includes it
        assert prompt_hash("react") == SHIPPED.hash("react")
    assert prompt_hash("answer_direct") == shipped_hash


def test_what_fills_a_text_in_is_never_read_as_a_template(folder):
    prompts = own_prompts(folder(EACH, "Q: {{ question }}\n{{ passage.text }}"))
    hostile = PASSAGE.model_copy(update={"text": "{{ question }}{% include 'judge.jinja' %}{{ ''.__class__ }}"})
    assert prompts.render("teacher_relevance_each", {"question": "Who?", "passage": hostile}) == f"Q: Who?\n{hostile.text}"


def test_own_text_makes_no_control_tokens_of_itself_or_of_a_passage(folder, control_tokenizer):
    text = f"{TOKEN}{{{{ question }}}}\n[{{% for p in passages %}}{{{{ p.text }}}}]{{% endfor %}} </s><|im_end|>"
    with use_prompts(own_prompts(folder("answer_with_passages.jinja", text))):
        prompt = render_prompt("answer_with_passages", question="Who?", passages=[PASSAGE.model_copy(update={"text": TOKEN[1:-1]})])
    assert TOKEN in prompt
    assert not set(encode_text(prompt, control_tokenizer)) & set(control_tokenizer.added_tokens_decoder)


def test_replies_end_where_the_own_text_goes_on(folder):
    with use_prompts(own_prompts(folder("answer_direct.jinja", "Task: {{ question }}\nMy answer:"))):
        assert stop_texts(render_prompt("answer_direct", question="Who?")) == ("\nTask:",)


def test_a_student_is_not_asked_with_own_text(folder):
    with use_prompts(own_prompts(folder("answer_direct.jinja", "Say: {{ question }}"))):
        assert student_prompt("re_thinking_relevance", query="Who?", knowledge=[])
        with pytest.raises(RecipeError, match=r"^prompts: students are trained on the text of answer_direct\.jinja that ships"):
            student_prompt("answer_direct", question="Who?")


def test_the_sample_values_cover_every_variable():
    assert all(variable(name, one).about for name in filter(may_replace, shipped_files()) for one in variables(name, SHIPPED))


def test_one_own_text_changes_how_every_prompt_shows_passages(tmp_path):
    text = SHIPPED.text("passages").replace("Title: {{ passage.title }}", "# {{ passage.title }}")
    (tmp_path / "passages.jinja").write_text(text)
    with use_prompts(own_prompts(tmp_path)):
        asked = render_prompt("answer_with_passages", question="Who?", passages=[Passage(id="p", title="Dune", text="A film.")])
        assert "# Dune\nText: A film.\n" in asked
        assert prompt_hash("teacher_question") != SHIPPED.hash("teacher_question")
