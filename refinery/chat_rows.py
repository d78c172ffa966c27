"""Labels as the rows that other trainers read: chat messages with native tool calls, and the layouts made of them."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from refinery.contract.formats import SEARCH_ACTIONS
from refinery.contract.records import Preference, Record, Step, Trajectory
from refinery.contract.search_tool import SEARCH_TOOL, SearchCall, calls_message, found_message
from refinery.contract.tool_format import found_text
from refinery.errors import RecordError
from refinery.prompts.render import render_prompt
from refinery.tasks.base import PromptedTask, Task

Message = dict[str, Any]
Row = dict[str, Any]


def to_messages(record: Record, task: Task[Any], system_prompt: str) -> tuple[list[Message], list[Message]]:
    """(what the model reads first, what it writes with what its searches find). Raises RecordError for a record that is no chat.

    `system_prompt` is for paths without one of their own.
    """
    if isinstance(record, Trajectory):
        return _asked(record, system_prompt), [message for step in record.steps for message in _step(step)]
    if isinstance(task, PromptedTask):
        prompt, reply = task.prompt_and_reply(record)
        return [_said("user", prompt)], [_said("assistant", reply.strip())]
    raise RecordError(f"a row of task '{task.name}' is a pair of paths. Use --format preference.")


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": str(content)}


def _asked(path: Trajectory, system_prompt: str) -> list[Message]:
    system = render_prompt(system_prompt) if path.system_prompt is None else path.system_prompt
    earlier = [
        message
        for turn in path.history or []
        for message in (
            _said("user", turn.question),
            _said("assistant", turn.reply if isinstance(turn.reply, str) else turn.reply[-1].text),
        )
    ]
    return [_said("system", system), *earlier, _said("user", path.question)]


def _step(step: Step) -> list[Message]:
    if step.action in SEARCH_ACTIONS:
        return [calls_message([SearchCall(step.action, step.text.strip())]), found_message(found_text(step.passages))]
    if step.action != "answer":
        raise RecordError(f"a step '{step.action}' is neither a search nor the answer, so it cannot be written as a message.")
    return [_said("assistant", step.text.strip())]


def _tools(messages: Sequence[Message]) -> Row:
    return {"tools": [SEARCH_TOOL]} if any("tool_calls" in message for message in messages) else {}


def _messages(record: Record, task: Task[Any], system_prompt: str) -> Row:
    read, written = to_messages(record, task, system_prompt)
    return {"messages": [*read, *written], **_tools(written)}


def _prompt_completion(record: Record, task: Task[Any], system_prompt: str) -> Row:
    read, written = to_messages(record, task, system_prompt)
    return {"prompt": read, "completion": written, **_tools(written)}


def _preference(record: Record, task: Task[Any], system_prompt: str) -> Row:
    if not isinstance(record, Preference):
        raise RecordError(f"a row of task '{task.name}' is no pair of paths. Use another --format.")
    (read, chosen), (_, rejected) = (to_messages(path, task, system_prompt) for path in (record.chosen, record.rejected))
    return {"prompt": read, "chosen": chosen, "rejected": rejected, **_tools([*chosen, *rejected])}


_SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def _sharegpt(record: Record, task: Task[Any], system_prompt: str) -> Row:
    read, written = to_messages(record, task, system_prompt)

    def said(message: Message) -> Row:
        if calls := message.get("tool_calls"):
            return {"from": "function_call", "value": json.dumps(calls[0]["function"], ensure_ascii=False)}
        return {"from": _SPEAKERS[message["role"]], "value": message["content"]}

    tools = {name: json.dumps(value) for name, value in _tools(written).items()}
    return {"conversations": [said(message) for message in (*read, *written)], **tools}


def _alpaca(record: Record, task: Task[Any], system_prompt: str) -> Row:
    read, written = to_messages(record, task, system_prompt)
    if len(read) > 1 or len(written) > 1:
        raise RecordError("alpaca has one instruction and one output, and this row has more. Use --format messages.")
    return {"instruction": read[0]["content"], "input": "", "output": written[0]["content"]}


LAYOUTS: dict[str, Callable[[Record, Task[Any], str], Row]] = {
    "messages": _messages,
    "prompt_completion": _prompt_completion,
    "preference": _preference,
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
}
