"""The baseline's reader."""

from infer.decoders.rag import Options, answer_from
from infer.modules.base import DecoderModules, Module
from infer.modules.kinds.answers import ANSWERS
from infer.modules.kinds.base import Case
from infer.session import Session
from refinery.contract.module_output import ModuleOutput


async def _answer(case: Case, session: Session, options: Options) -> ModuleOutput:
    return ModuleOutput(texts=[await answer_from(case.passages, case.question, session)])


MODULES = DecoderModules({"answer": Module(ANSWERS, _answer)})
