"""The declaration of a decoder's steps that can run alone, and running one of them.

A file in this folder has the modules of the decoder with the same name. Your own Python module, which a recipe names as its `decoder`,
declares them next to the decoder:

    async def decompose(case: Case, session: Session, options: Options) -> ModuleOutput:
        return ModuleOutput(texts=await sub_questions(case.question, session, options))

    DECODER = Decoder(decode, Options)
    MODULES = DecoderModules({"decomposition": Module(DECOMPOSITION, decompose)})
"""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infer.modules.kinds.base import Case, ModuleKind
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.errors import PluginError
from refinery.runtime.recipes import plugins
from refinery.runtime.recipes.plugins import PluginKind
from refinery.text import did_you_mean

OUTPUT = "output"  # the name of the trace steps that are graded
UNREAD = ("unparsed:", "malformed:", "refused:", "truncated:", "empty:")  # faults of replies without the requested content


@dataclass(frozen=True, slots=True)
class Module:
    """One step of a decoder.

    `run(case, session, options)` makes its calls: to the models in the roles `roles`, or else to the model. `loads` says whether it needs
    the models that the decoder loads besides the recipe's.
    """

    kind: ModuleKind
    run: Callable[[Case, Session, Any], Awaitable[ModuleOutput]]
    roles: tuple[str, ...] = ()
    loads: bool = False


@dataclass(frozen=True, slots=True)
class DecoderModules:
    """The modules of a decoder, by name."""

    by_name: Mapping[str, Module]


_MODULES = PluginKind("modules of decoder", "infer.modules", DecoderModules, "MODULES")


def find_module(decoder: str, name: str) -> Module:
    """A module of a decoder, both by names that the user wrote. Raises PluginError."""
    modules = plugins.find(_MODULES, decoder.partition(":")[0]).by_name
    if name not in modules:
        raise PluginError(f"decoder '{decoder}' has no module '{name}'.{did_you_mean(name, modules)} Modules: {', '.join(modules)}.")
    return modules[name]


async def run_alone(module: Module, question: Question, session: Session, options: Any) -> Prediction:
    """Run the module: a step named `output` for each case, after the steps of its calls. The answer is empty."""
    for number, case in enumerate(await module.kind.cases(question, session)):
        before = _num_unread(session)
        output = await module.run(_fitting(case, session), session, options)
        unread = max(output.unread, _num_unread(session) - before)
        output = output.model_copy(update={"step": case.step, "given": list(case.given), "unread": unread})
        output = await module.kind.observe(case, output, question, session)
        session.record(OUTPUT, case.question, depth=number, passages=case.hits, output=output)
    return session.prediction("")


def _num_unread(session: Session) -> int:
    return sum(step.name == "fault" and (step.text or "").startswith(UNREAD) for step in session.trace)


def _fitting(case: Case, session: Session) -> Case:
    """The case with its passages shortened to fit the model, as those of a decoder's search are."""
    passages = session.fitted([hit.passage for hit in case.hits])
    hits = [dataclasses.replace(hit, passage=passage) for hit, passage in zip(case.hits, passages, strict=True)]
    return dataclasses.replace(case, hits=hits)
