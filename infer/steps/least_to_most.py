"""Let the model decompose a question into simpler ones, for decoders that answer it part by part."""

from infer.session import Session
from infer.steps.ask import record_fault
from infer.steps.demonstrations import Examples, reason_with
from refinery.contract.records import Passage
from refinery.contract.sub_questions import parse_sub_questions


async def simpler_questions(question: str, session: Session, *, examples: Examples = "zero", max_new_tokens: int) -> list[str]:
    """The simpler questions, from one call (the first stage of Least-to-Most).

    The question itself is left out. A reply that does not list any questions leaves a `fault` in the trace.
    """
    listed = await reason_with(examples, "decompose", "least_to_most_decompose", question, session, max_new_tokens=max_new_tokens)
    found = parse_sub_questions(listed)
    if listed and not found:
        record_fault(session, question, "unparsed", f"no simpler questions in {listed[:80]!r}", depth=0)
    return [part for part in found if part != question]


async def two_parts(question: str, session: Session, *, max_new_tokens: int) -> list[tuple[str, list[Passage]]]:
    """Q1 and Q2 of RQ-RAG Tables 7 and 8, each with the passages found for it.

    The paper does not say where these questions come from. Here they are the first two that the model names; the question itself fills in
    if the model names fewer.
    """
    named = await simpler_questions(question, session, max_new_tokens=max_new_tokens)
    asked = [*named, question, question][:2]
    return [(part, await session.search(part, depth=1) if session.retriever else []) for part in asked]
