"""Rows from elsewhere: every layout gives the same conversation, and what is not understood is one line."""

import json

import pytest

from refinery.errors import RecordError
from refinery.tasks.chat import TASK
from refinery.tasks.chat_preference import TASK as PAIRS

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
SAID = [{"role": "assistant", "content": "Ann."}]
CALL = {"name": "add", "arguments": {"a": 3}}
LAYOUTS = {
    "messages": {"messages": [*ASKED, *SAID]},
    "prompt_completion": {"prompt": ASKED, "completion": SAID},
    "sharegpt": {
        "conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Ann."}]
    },
    "alpaca": {"system": "Be brief.", "instruction": "Who?", "input": "", "output": "Ann."},
    "parts": {"messages": [*ASKED, {"role": "assistant", "content": [{"type": "text", "text": "Ann."}]}]},
}


def read(tmp_path, row, task=TASK):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return task.read(path)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_the_same_conversation(tmp_path, layout):
    row = read(tmp_path, LAYOUTS[layout])
    assert [(message.role, message.content) for message in row.messages] == [
        ("system", "Be brief."),
        ("user", "Who?"),
        ("assistant", "Ann."),
    ]
    assert row.read == (2 if layout == "prompt_completion" else 0)


def test_a_parquet_file_has_the_same_rows(tmp_path):
    from refinery.runtime.files.parquet import write_parquet

    write_parquet(tmp_path / "rows.parquet", [LAYOUTS["messages"]])
    assert [message.content for message in TASK.read(tmp_path / "rows.parquet")[0].messages] == ["Be brief.", "Who?", "Ann."]


def test_tool_calls_of_sharegpt_are_calls(tmp_path):
    turns = [
        {"from": "human", "value": "3+1?"},
        {"from": "function_call", "value": json.dumps(CALL)},
        {"from": "observation", "value": "4"},
    ]
    row = read(tmp_path, {"conversations": [*turns, {"from": "gpt", "value": "4"}], "tools": json.dumps([{"type": "function"}])})
    assert [message.role for message in row.messages] == ["user", "assistant", "tool", "assistant"]
    assert row.messages[1].tool_calls == [{"type": "function", "function": CALL}]
    assert row.tools == [{"type": "function"}]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": ASKED, "chosen": SAID, "rejected": [{"role": "assistant", "content": "Bob."}]},
        {"chosen": [*ASKED, *SAID], "rejected": [*ASKED, {"role": "assistant", "content": "Bob."}]},
    ],
)
def test_a_pair_has_one_prompt_and_two_replies(tmp_path, row):
    pair = read(tmp_path, row, PAIRS)
    assert [(side.read, side.reply) for side in (pair.chosen, pair.rejected)] == [(2, "Ann."), (2, "Bob.")]
    assert pair.question == "Who?"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"text": "a"}, "has the columns text; expected `messages`"),
        ({"messages": "a"}, "messages are not a list"),
        ({"messages": ["a"]}, "a message is not an object"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "role: Input should be"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "has a part that is not text"),
        ({"conversations": [{"from": "cat", "value": "a"}]}, "nobody is called 'cat'"),
        ({"conversations": [{"from": "human"}]}, "has no 'value'"),
        ({"conversations": [{"from": "function_call", "value": "{"}]}, "Expecting property name"),
    ],
)
def test_a_row_that_is_not_understood_is_one_line(tmp_path, row, fault):
    with pytest.raises(RecordError, match=rf"^.*rows\.jsonl: row 1: .*{fault}"):
        read(tmp_path, row)
