"""Models that reply in their own way: reasoning, prose around the object, broken punctuation, refusals."""

from helpers.scripted_server import chat_reply
from helpers.wild_endpoints.table import LABEL, WildEndpoint, always, at_question, in_turn, message

REPLIES = [
    WildEndpoint("reasoning before the reply (DeepSeek-R1, Qwen3)", always(f"<think>\nIs it {{this}}?\n</think>\n\n{LABEL}")),
    WildEndpoint("reasoning that was opened by the template (R1, QwQ)", always(f"First, who? Then where?\n</think>\n{LABEL}")),
    WildEndpoint("reasoning in its own field", message(content=LABEL, reasoning_content="First, who?")),
    WildEndpoint("a fenced object with small talk", always(f"Here you are:\n```json\n{LABEL}\n```\nAnything else?")),
    WildEndpoint("single quotes", always(LABEL.replace('"', "'")), metrics={"replies_read_as": {"mended": 4}}),
    WildEndpoint("an example before the answer", always('{"sub_questions": "a list"}\n' + LABEL)),
    WildEndpoint(
        "a list without its object", always('["Who directed it?", "Where was #1 born?"]'), metrics={"replies_read_as": {"list": 4}}
    ),
    WildEndpoint(
        "an answer in words, corrected when asked",
        lambda body: (200, chat_reply(LABEL if len(body["messages"]) > 1 else "It depends.")),
        paid=8,
    ),
    WildEndpoint("a refusal in words", at_question(0, (200, chat_reply("I'm sorry, I can't help."))), kept=3, rejected={"refused": 1}),
    WildEndpoint("a refusal in its own field", message(content=None, refusal="No."), kept=0, rejected={"refused": 4}, says=("No.",)),
    WildEndpoint("parts instead of a text", message(content=[{"type": "text", "text": LABEL}])),
    WildEndpoint(
        "an empty reply, once", in_turn((200, chat_reply(""))), kept=3, rejected={"empty": 1}, says=("the endpoint sent no text",)
    ),
    WildEndpoint("reasoning in Magistral's marks", always(f"[THINK]Is it {{this}}?[/THINK]{LABEL}")),
    WildEndpoint(
        "raw channels (gpt-oss on a server that does not know its format)",
        always(f"<|channel|>analysis<|message|>Who?<|end|><|start|>assistant<|channel|>final<|message|>{LABEL}<|return|>"),
        metrics={"replies_read_as": {"object": 4}},
    ),
    WildEndpoint("an answer that the server takes for reasoning (Qwen3 without thinking on vLLM)", message(content=None, reasoning=LABEL)),
    WildEndpoint("an answer at the end of reasoning that never closes", always(f"<think>Who first? So:\n```json\n{LABEL}\n```")),
    WildEndpoint(
        "reasoning without an answer",
        message(content="", reasoning_content=f"Perhaps {LABEL}, or not."),
        kept=0,
        rejected={"empty": 4},
    ),
    WildEndpoint(
        "arguments of a tool", message("tool_calls", content=None, tool_calls=[{"function": {"name": "answer", "arguments": LABEL}}])
    ),
    WildEndpoint(
        "a call of a tool as text (Hermes, Qwen)", always(f'<tool_call>\n{{"name": "answer", "arguments": {LABEL}}}\n</tool_call>')
    ),
    WildEndpoint("an object inside another", always(f'{{"result": {LABEL}}}')),
    WildEndpoint("braces in prose before and after", always(f'The set {{1, 2}} is 5" {{wide}}: {LABEL} {{end}}')),
    WildEndpoint(
        "the answer before an object of another kind",
        always(f'{LABEL}\n{{"confidence": 0.9}}'),
        metrics={"replies_read_as": {"object": 4}},
    ),
    WildEndpoint(
        "a list in Python's quotes", always("['Who directed it?', 'Where was #1 born?']"), metrics={"replies_read_as": {"list": 4}}
    ),
    WildEndpoint("a megabyte of braces", at_question(0, (200, chat_reply("{" * 1_000_000))), kept=3, paid=5, rejected={"malformed": 1}),
]
