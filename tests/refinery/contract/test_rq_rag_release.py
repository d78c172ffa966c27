import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.formats import SEARCH_ACTIONS
from refinery.contract.records import Passage, Step, Trajectory, Turn, write_records
from refinery.contract.rq_rag_release import CHAT_MARKERS, ReleaseRow, escape, parse_release_row, read_trajectories, release_row, unescape
from refinery.errors import RecordError

SPECIAL = [*(token.token for token in RQ_RAG), *CHAT_MARKERS]
FRAGMENTS = [*SPECIAL, *(f"{text[0]}\\{text[1:]}" for text in SPECIAL), "[", "\\", "\n", " ", "Title: x\nText: y", "Lyon"]
hostile_text = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5)), max_size=6).map("".join)
passages = st.lists(st.builds(Passage, id=st.just("any"), title=hostile_text, text=hostile_text), max_size=3)
searches = st.lists(st.builds(Step, action=st.sampled_from(SEARCH_ACTIONS), text=hostile_text, passages=passages), max_size=3)
responses = st.lists(st.builds(Step, action=st.just("respond"), text=hostile_text), max_size=1)
closings = st.builds(Step, action=st.just("answer"), text=hostile_text)
steps = st.builds(lambda found, said, last: [*found, *said, last], searches, responses, closings)
turns = st.builds(Turn, question=hostile_text, reply=st.one_of(hostile_text, steps))
trajectories = st.builds(
    Trajectory,
    question_id=st.text(min_size=1, max_size=5),
    question=hostile_text,
    steps=steps,
    history=st.one_of(st.none(), st.lists(turns, min_size=1, max_size=2)),
    system_prompt=st.one_of(st.none(), hostile_text),
)

DUNE = Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed.")
TREE = Trajectory(
    question_id="q1",
    question="Who directed Dune?",
    steps=[Step(action="decompose", text="director of Dune", passages=[DUNE]), Step(action="answer", text="Maria Torvel")],
    system_prompt="Be short.",
)


def normalised(trajectory: Trajectory) -> Trajectory:
    """What survives writing: stripped steps, passages without line breaks, positions as ids."""

    def line(text: str) -> str:
        return re.sub("\r\n|[\r\n]", " ", text).strip()

    def steps_of(steps: list[Step]) -> list[Step]:
        return [
            Step(
                action=step.action,
                text=step.text.strip(),
                passages=[Passage(id=str(i), title=line(p.title), text=line(p.text)) for i, p in enumerate(step.passages, 1)],
            )
            for step in steps
        ]

    history = trajectory.history and [
        turn if isinstance(turn.reply, str) else turn.model_copy(update={"reply": steps_of(turn.reply)}) for turn in trajectory.history
    ]
    return trajectory.model_copy(update={"steps": steps_of(trajectory.steps), "history": history})


def parse(row: dict) -> Trajectory:
    return parse_release_row(ReleaseRow.model_validate(row), where="row 1")


def row_of(*contents: str, system: str | None = None) -> dict:
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return {"id": 7, "dataset": "arc", "messages": [{"role": "system", "content": system}, *messages] if system else messages}


@given(trajectory=trajectories)
def test_a_row_reads_back_to_the_trajectory_that_was_written(trajectory):
    assert parse(json.loads(json.dumps(release_row(trajectory, "any")))) == normalised(trajectory)


@given(trajectory=trajectories)
def test_a_row_holds_as_many_control_tokens_as_the_trajectory_has(trajectory):
    written = [message["content"] for message in release_row(trajectory, "any")["messages"]]
    replies = [turn.reply for turn in trajectory.history or [] if not isinstance(turn.reply, str)]
    all_steps = [step for reply in [*replies, trajectory.steps] for step in reply]
    searched = sum(step.action in SEARCH_ACTIONS for step in all_steps)
    assert sum(content.count("[EOS]") for content in written) == len(all_steps)
    assert sum(content.count("[R_Evidences]") for content in written) == searched
    assert sum(content.count("[/R_Evidences]") for content in written) == searched
    assert not any(marker in content for marker in CHAT_MARKERS for content in written)


@given(text=hostile_text)
def test_escaped_text_holds_nothing_special_and_can_be_undone(text):
    assert not any(special in escape(text) for special in SPECIAL)
    assert unescape(escape(text)) == text


def test_a_row_is_what_the_authors_write():
    evidence = "Title: Dune\nText: Dune is a film that Maria Torvel directed."
    assert release_row(TREE, "musique") == {
        "id": "q1",
        "dataset": "musique",
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Who directed Dune?"},
            {
                "role": "assistant",
                "content": f"[S_Decomposed_Query]\ndirector of Dune\n[EOS]\n[R_Evidences]\n{evidence}\n[/R_Evidences]\n"
                "[A_Response]\nMaria Torvel\n[EOS]",
            },
        ],
    }


def test_a_released_row_of_several_turns_is_one_trajectory():
    evidence = "[R_Evidences]\nTitle: Dune\nText: A film.\nIn two parts.\n[/R_Evidences]"
    said = f"[S_Rewritten_Query]\nDune film\n[EOS]{evidence}[A_Response]\nA film.\n[EOS]"
    trajectory = parse(row_of("What is Dune?", said, "Thanks!", "[A_Response]\nYou are welcome.\n[EOS]", system="Help."))
    assert (trajectory.question_id, trajectory.question, trajectory.answer) == ("7", "Thanks!", "You are welcome.")
    searched = Step(action="rewrite", text="Dune film", passages=[Passage(id="1", title="Dune", text="A film.\nIn two parts.")])
    assert trajectory.history == [Turn(question="What is Dune?", reply=[searched, Step(action="answer", text="A film.")])]


def test_a_row_with_a_plain_last_reply_is_a_dialogue_without_searches():
    trajectory = parse(row_of("What is Dune?", "A film.", "Whose?", " Torvel's. ", system="Help."))
    assert trajectory.steps == [Step(action="answer", text="Torvel's.")]
    assert trajectory.history == [Turn(question="What is Dune?", reply=[Step(action="answer", text="A film.")])]


def test_unescaped_tokens_of_a_foreign_row_stay_text():
    said = "[S_Rewritten_Query]\nwhat is [A_Response]\n[EOS][R_Evidences]\nTitle: [S_Response]\nText: </s> ends [EOS] it\n[/R_Evidences]"
    (search, _) = parse(row_of("Q", f"{said}[A_Response]\nA token.\n[EOS]")).steps
    assert (search.text, search.passages[0].title, search.passages[0].text) == (
        "what is [A_Response]",
        "[S_Response]",
        "</s> ends [EOS] it",
    )


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (("Q",), "row 1: its messages do not alternate between user and assistant. Leave the row out."),
        (("Q", "[A_Response]\nLyon"), r"row 1: no \[EOS\] closes 'Lyon'."),
        (("Q", "[A_Response]\nLyon\n[EOS] more"), "row 1: expected the start of a step, found 'more'."),
        (("Q", "[S_Rewritten_Query]\nq\n[EOS][R_Evidences]\nTitle: x"), r"row 1: no \[/R_Evidences\] closes 'Title: x'."),
        (("Q", "[A_Response]\nLyon\n[EOS][R_Evidences]\n[/R_Evidences]"), "expected the start of a step"),
    ],
)
def test_a_row_that_is_no_trajectory_says_why(contents, message):
    with pytest.raises(RecordError, match=message):
        parse(row_of(*contents))


def test_a_file_is_read_in_either_layout(tmp_path):
    write_records(tmp_path / "ours.jsonl", [TREE])
    (tmp_path / "released.jsonl").write_text(json.dumps(release_row(TREE, "any")) + "\n")
    assert read_trajectories(tmp_path / "ours.jsonl") == [TREE]
    assert read_trajectories(tmp_path / "released.jsonl") == [normalised(TREE)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "rows.jsonl: has no rows. It should hold one Trajectory per line."),
        ('{"id": "a", "dataset": "b", "messages": [{"role": "tool", "content": ""}]}', "rows.jsonl:1: field 'messages.0.role'"),
        (
            '{"id": "a", "dataset": "b", "messages": [{"role": "user", "content": ""}]}',
            "rows.jsonl: row 1: its messages do not alternate between user",
        ),
        ('{"question_id": "a"}', "rows.jsonl:1: field 'question': is missing. The row has 'question_id'. Expected a Trajectory row."),
    ],
)
def test_a_bad_file_says_where(tmp_path, content, message):
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(RecordError, match=message):
        read_trajectories(tmp_path / "rows.jsonl")
