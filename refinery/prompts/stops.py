"""Find the end of a reply to a prompt: after its answer, a base model continues in the prompt's own format.

It makes up another question, passage or demonstration, whose answer does not answer the user's question.
"""

import re
from functools import cache

from refinery.prompts.render import Prompt, prompt_source

_NOT_TEXT = re.compile(r"\{#.*?#\}|\{%.*?%\}", re.DOTALL)  # comments and tags
# A line that opens a question, a passage or a turn. Labels with numbers are left out, because replies use them in lists (`Q3: `).
_LABELED = re.compile(
    r"^(?P<label>[A-Z][A-Za-z -]*:) \{\{ (?:question|query|sub_question|passage\.title|hypothesis|text) \}\}", re.MULTILINE
)
# A line of the instructions, which a demonstration repeats: it is the same for every question, and it is a sentence.
_INSTRUCTION = re.compile(r"^(?![A-Z][A-Za-z -]*:)\S[^{\n]*\.(?: [^{\n]*)?$", re.MULTILINE)


def stop_texts(prompt: str) -> tuple[str, ...]:
    """Texts that show that a reply to the prompt has ended and something else begins, for engines that stop at texts.

    They come from the prompt's file and never from the values filled in. A text that was not rendered from a file has none, and neither
    has a student's prompt, because a student was trained to end its replies.
    """
    if not isinstance(prompt, Prompt) or prompt.name.startswith("student_"):
        return ()
    return tuple(f"\n{line}" for line in _openings(prompt_source(prompt.name)) if line in prompt)


def split_reply(reply: str, prompt: str) -> tuple[str, str]:
    """The reply to the prompt, and the text after the end of the reply.

    A chat model may repeat the question before it answers: a reply that starts with a line of the prompt is not cut at such lines.
    """
    text, shown = f"\n{reply}", set(prompt.splitlines())
    starts = sorted(found.start() for stop in stop_texts(prompt) for found in re.finditer(re.escape(stop), text))
    repeated = [start for start in starts if text[start + 1 :].partition("\n")[0].rstrip() in shown]
    cuts = [start for start in starts if start not in repeated] if repeated[:1] == [0] else starts
    if not cuts:
        return reply, ""
    return text[: cuts[0]].strip(), text[cuts[0] + 1 :]


def settled_part(text: str, prompt: str) -> str:
    """The part of a reply that is still being written which `split_reply` will keep: its last line may yet become a stop text."""
    kept, cut = split_reply(text, prompt)
    before, line_end, last = kept.rpartition("\n")
    may_end = line_end and not cut and any(stop.startswith(f"\n{last}") for stop in stop_texts(prompt))
    return before if may_end else kept


@cache
def _openings(source: str) -> tuple[str, ...]:
    text = _NOT_TEXT.sub("", source)
    labels = [found["label"] for found in _LABELED.finditer(text)]
    return tuple(dict.fromkeys([*labels, *_INSTRUCTION.findall(text)]))
