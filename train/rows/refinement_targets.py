"""The steps of a refinement row: the text that the model writes in one go, and the text before it."""

from collections.abc import Sequence

from refinery.contract.control_tokens import OPENING
from refinery.contract.formats import END
from refinery.contract.segments import Segment


def split_steps(segments: Sequence[Segment]) -> list[tuple[list[Segment], list[Segment]]]:
    """(text since the last step, step) for each step in order; a step extends from its action token to `[EOS]`."""
    steps: list[tuple[list[Segment], list[Segment]]] = []
    before: list[Segment] = []
    step: list[Segment] = []
    for segment in segments:
        is_control = segment.kind == "control_token"
        if step or (is_control and segment.text in OPENING):
            step.append(segment)
        else:
            before.append(segment)
        if step and is_control and segment.text == END.text:
            steps.append((before, step))
            before, step = [], []
    return steps
