"""A question broken down by the model into simpler ones, for the decoders that answer it part by part."""

from infer.session import Session
from infer.steps.ask import record_fault
from infer.steps.demonstrations import Examples, reason_with
from refinery.contract.records import Passage
from refinery.contract.sub_questions import parse_sub_questions


async def simpler_questions(question: str, session: Session, *, examples: Examples = "zero", max_new_tokens: int) -> list[str]:
    """One call (Least-to-Most's first stage). The question itself is left out; a reply that lists none leaves a `fault` in the trace."""
    listed = await reason_with(examples, "decompose", "least_to_most_decompose", question, session, max_new_tokens=max_new_tokens)
    found = parse_sub_questions(listed)
    if listed and not found:
        record_fault(session, question, "unparsed", f"no simpler questions in {listed[:80]!r}", depth=0)
    return [part for part in found if part != question]


async def two_parts(question: str, session: Session, *, max_new_tokens: int) -> list[tuple[str, list[Passage]]]:
    """Q1 and Q2 of RQ-RAG's Tables 7 and 8, each with what is found for it. The paper does not say where they come from.

    Here they are the first two that the model names, and the question itself where it names fewer.
    """
    named = await simpler_questions(question, session, max_new_tokens=max_new_tokens)
    asked = [*named, question, question][:2]
    return [(part, await session.search(part, depth=1) if session.retriever else []) for part in asked]
