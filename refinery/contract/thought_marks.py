"""The marks that reasoning models write around their thoughts before a reply."""

# Claude's and Phi's prompts, Magistral, Kimi-VL, Seed-OSS, and the channels of gpt-oss.
THOUGHT_MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)


def opened_thought(prompt: str) -> tuple[str, str] | None:
    """The marks of the thought that a prompt ends by opening (DeepSeek-R1, QwQ), or None."""
    end = prompt.rstrip()
    return next((marks for marks in THOUGHT_MARKS if end.endswith(marks[0])), None)
