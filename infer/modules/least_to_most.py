"""The first stage of Least-to-Most, which RA-ISF (Table 1) compares with."""

from infer.decoders.least_to_most import Options
from infer.modules.base import DecoderModules, Module
from infer.modules.kinds.base import Case
from infer.modules.kinds.decomposition import DECOMPOSITION
from infer.session import Session
from infer.steps.least_to_most import simpler_questions
from refinery.contract.module_output import ModuleOutput


async def _decomposition(case: Case, session: Session, options: Options) -> ModuleOutput:
    limit = options.max_reasoning_tokens
    texts = await simpler_questions(case.question, session, examples=options.examples, max_new_tokens=limit)
    return ModuleOutput(texts=texts[: options.max_parts], unread=not texts)


MODULES = DecoderModules({"decomposition": Module(DECOMPOSITION, _decomposition)})
