import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.formats import (
    SEARCH_ACTIONS,
    action_segment,
    evidence_segments,
    parse_steps,
    prompt_segments,
    trajectory_segments,
)
from refinery.contract.records import Passage, Step, Trajectory
from refinery.contract.segments import IGNORED_LABEL, Segment, encode, encode_segment
from refinery.errors import RecordError

SYSTEM = "Answer the question."
FRAGMENTS = [
    "[A_Response]",
    "[EOS]",
    "[/R_Evidences]",
    "[R_Evidences]",
    "[S_Response]",
    "</s>",
    "<s>",
    "\n",
    " ",
    "Title: x\nText: y",
    "Lyon",
]
hostile_text = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5)), max_size=6).map("".join)
passages = st.lists(st.builds(Passage, id=st.just("any"), title=hostile_text, text=hostile_text), max_size=3)
searches = st.lists(st.builds(Step, action=st.sampled_from(SEARCH_ACTIONS), text=hostile_text, passages=passages), max_size=3)
responses = st.lists(st.builds(Step, action=st.just("respond"), text=hostile_text), max_size=1)
closings = st.builds(Step, action=st.just("answer"), text=hostile_text)
steps = st.builds(lambda found, said, last: [*found, *said, last], searches, responses, closings)
trajectories = st.builds(Trajectory, question_id=st.just("q"), question=hostile_text, steps=steps)
both_formats = pytest.mark.parametrize("format", ["consistent", "official"])


def normalised(step: Step, format: str) -> Step:
    """What survives writing: stripped text, passages on one line (`official` keeps other white space in them), positions as ids."""

    def line(text: str) -> str:
        return " ".join(text.split()) if format == "consistent" else re.sub("\r\n|[\r\n]", " ", text).strip()

    kept = [Passage(id=str(i), title=line(p.title), text=line(p.text)) for i, p in enumerate(step.passages, 1)]
    return Step(action=step.action, text=step.text.strip(), passages=kept)


@both_formats
@given(trajectory=trajectories)
def test_parsing_gives_back_the_steps_that_were_written(control_tokenizer, format, trajectory):
    row = encode(trajectory_segments(trajectory, SYSTEM, control_tokenizer, format=format), control_tokenizer)
    assert parse_steps(row.input_ids, control_tokenizer) == [normalised(step, format) for step in trajectory.steps]


@both_formats
@given(trajectory=trajectories)
def test_the_training_prompt_equals_the_inference_prompt_token_for_token(control_tokenizer, format, trajectory):
    prompt = encode(prompt_segments(trajectory.question, SYSTEM, control_tokenizer, format="consistent"), control_tokenizer).input_ids
    row = encode(trajectory_segments(trajectory, SYSTEM, control_tokenizer, format=format), control_tokenizer)
    assert row.input_ids[: len(prompt)] == prompt
    assert set(row.labels[: len(prompt)]) == {IGNORED_LABEL}


@given(trajectory=trajectories)
def test_a_consistent_row_is_what_a_decoder_builds_token_for_token(control_tokenizer, trajectory):
    row = encode(trajectory_segments(trajectory, SYSTEM, control_tokenizer, format="consistent"), control_tokenizer)
    built = encode(prompt_segments(trajectory.question, SYSTEM, control_tokenizer, format="consistent"), control_tokenizer).input_ids
    for step in trajectory.steps:
        built += encode_segment(action_segment(step.action), control_tokenizer)
        built += written_by_the_model(step, row.input_ids[len(built) :], control_tokenizer)
        if step.action in SEARCH_ACTIONS:
            inserted = evidence_segments(step.passages, format="consistent")
            built += [token for segment in inserted for token in encode_segment(segment, control_tokenizer)]
    assert row.input_ids == built


def written_by_the_model(step: Step, ids: list[int], tokenizer) -> list[int]:
    """The tokens a model trained on this row writes: up to and including `[EOS]`."""
    end = ids.index(tokenizer.convert_tokens_to_ids("[EOS]")) + 1
    assert tokenizer.decode(ids[: end - 1], clean_up_tokenization_spaces=False) == f" {step.text.strip()}"
    return ids[:end]


@both_formats
@given(trajectory=trajectories)
def test_nothing_of_the_evidence_is_trained(control_tokenizer, format, trajectory):
    row = encode(trajectory_segments(trajectory, SYSTEM, control_tokenizer, format=format), control_tokenizer)
    markers = set(control_tokenizer.convert_tokens_to_ids(["[R_Evidences]", "[/R_Evidences]"]))
    assert not markers & set(row.labels)
    assert {label for label, kind in zip(row.labels, row.kinds, strict=True) if kind == "evidence"} <= {IGNORED_LABEL}


@both_formats
@given(trajectory=trajectories)
def test_everything_the_model_writes_is_trained(control_tokenizer, format, trajectory):
    row = encode(trajectory_segments(trajectory, SYSTEM, control_tokenizer, format=format), control_tokenizer)
    written = [label for label, kind in zip(row.labels, row.kinds, strict=True) if kind in ("query", "answer")]
    ends = row.labels.count(control_tokenizer.convert_tokens_to_ids("[EOS]"))
    assert IGNORED_LABEL not in written
    assert ends == len(trajectory.steps)


FILMS = [Passage(id="1", title="Dune", text="Dune is a film."), Passage(id="2", title="Lyon", text="Lyon is a city.")]
EVIDENCE = "Title: Dune\nText: Dune is a film.\nTitle: Lyon\nText: Lyon is a city."
PROMPT = "<|system|>\nAnswer the question.</s>\n<|user|>\nWhich film?</s>\n<|assistant|>\n"
ANSWER = Step(action="answer", text="Dune")


def search(action: str) -> Step:
    return Step(action=action, text="Q", passages=FILMS)


@pytest.mark.parametrize(
    ("steps", "written"),
    [
        ([ANSWER], "[A_Response]\nDune\n[EOS]"),
        (
            [search("rewrite"), search("rewrite"), ANSWER],
            f"[S_Rewritten_Query]\nQ\n[EOS][R_Evidences]\n{EVIDENCE}\n[/R_Evidences]" * 2 + "[A_Response]\nDune\n[EOS]",
        ),
        (
            [search("decompose"), search("decompose"), ANSWER],
            f"[S_Decomposed_Query]\nQ\n[EOS]\n[R_Evidences]\n{EVIDENCE}\n[/R_Evidences]\n" * 2 + "[A_Response]\nDune\n[EOS]",
        ),
        (
            [search("disambiguate"), Step(action="respond", text="Dune\n\nLyon")] * 2 + [ANSWER],
            f"[S_Disambiguated_Query]\nQ\n[EOS]\n[R_Evidences]\n{EVIDENCE}\n[/R_Evidences]\n[S_Response]\nDune\n\nLyon\n[EOS]\n" * 2
            + "[A_Response]\nDune\n[EOS]",
        ),
    ],
    ids=["no search", "multi-turn", "decomposed", "disambiguated"],
)
def test_an_official_row_is_the_authors_sequence_byte_for_byte(control_tokenizer, steps, written):
    trajectory = Trajectory(question_id="q", question="Which film?", steps=steps)
    row = encode(trajectory_segments(trajectory, SYSTEM, control_tokenizer, format="official"), control_tokenizer)
    assert control_tokenizer.decode(row.input_ids, clean_up_tokenization_spaces=False) == f"<s>{PROMPT}{written}</s>"


@pytest.mark.parametrize(("format", "gap"), [("official", ""), ("consistent", "\n")])
def test_evidence_inserted_at_inference_reads_as_each_format_says(format, gap):
    text = "".join(segment.text for segment in evidence_segments(FILMS, format=format))
    assert text == f"[R_Evidences]{gap}{EVIDENCE}\n[/R_Evidences]"


def test_an_official_inference_sequence_is_read_back(control_tokenizer):
    segments = [
        *prompt_segments("Which film?", SYSTEM, control_tokenizer, format="consistent"),
        action_segment("rewrite"),
        Segment("\nQ\n", "query"),
        Segment("[EOS]", "control_token"),
        *evidence_segments(FILMS, format="official"),
    ]
    assert parse_steps(encode(segments, control_tokenizer).input_ids, control_tokenizer) == [search("rewrite")]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["[EOS]"], r"token 0: control token '\[EOS\]' is not allowed here"),
        (["[S_Rewritten_Query]", "[A_Response]"], r"token 1: control token '\[A_Response\]' is not allowed here"),
        (["[R_Evidences]", "[/R_Evidences]"], r"token 1: control token '\[/R_Evidences\]' is not allowed here"),
        (["[A_Response]", "[EOS]", "[S_Rewritten_Query]"], "token 2: the step opened here is not closed"),
    ],
)
def test_a_sequence_that_is_no_trajectory_is_refused(control_tokenizer, tokens, message):
    with pytest.raises(RecordError, match=message):
        parse_steps(control_tokenizer.convert_tokens_to_ids(tokens), control_tokenizer)
