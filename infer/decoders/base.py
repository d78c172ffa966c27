"""The declaration of a decoder, and finding a decoder by name.

A file in this folder, or your own module, declares one:

    DECODER = Decoder(decode, Options, needs_retriever=True)
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from infer.session import Session
from infer.steps.calls import Calls, Limits
from refinery.contract.control_tokens import ControlToken
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.errors import PluginError
from refinery.llms.base import Need
from refinery.llms.weights.families import FamilyName
from refinery.runtime.recipe import Recipe
from refinery.runtime.recipes import plugins
from refinery.runtime.recipes.plugins import PluginKind

NO_NEEDS = frozenset[Need]()
READS_LABELS = frozenset[Need]({"label_logprobs"})
OptionsT = TypeVar("OptionsT", bound=Recipe)


@dataclass(frozen=True, slots=True)
class SubModelRole:
    """A role that a sub-model, an adapter or the model itself plays.

    `needs` are the features that an endpoint in this role must support. A `required` role must be named in the recipe. A role with
    `played_by_model=False` stays empty unless the recipe names a model for it.
    """

    needs: frozenset[Need] = NO_NEEDS
    required: bool = False
    played_by_model: bool = True


@dataclass(frozen=True, slots=True)
class Decoder(Generic[OptionsT]):
    """One method: how it decodes a question, its options, and its requirements. Every hook that depends on the options receives them.

    `decode` handles one question; the engine batches across questions. `check_family` raises RecipeError for a model family that the
    options do not support; `load` loads any models besides the recipe's. `plan`
    gives the calls of a question by role, from which `--dry-run` and the plan of a project forecast tokens and dollars.
    """

    decode: Callable[[Question, Session, OptionsT], Awaitable[Prediction]]
    options: type[OptionsT]
    needs_retriever: bool = False
    control_tokens: Callable[[OptionsT], tuple[ControlToken, ...]] = lambda options: ()
    roles: Callable[[OptionsT], Mapping[str, SubModelRole]] = lambda options: {}
    llm_needs: Callable[[OptionsT], frozenset[Need]] = lambda options: NO_NEEDS
    check_family: Callable[[FamilyName, OptionsT], None] = lambda family, options: None
    load: Callable[[OptionsT], None] = lambda options: None
    plan: Callable[[OptionsT, Limits], list[Calls]] | None = None

    def __post_init__(self) -> None:
        if not callable(self.decode):
            raise PluginError(f"Decoder: 'decode' is {self.decode!r}, and not `async def decode(question, session, options)`.")
        if not (isinstance(self.options, type) and issubclass(self.options, Recipe)):
            raise PluginError(f"Decoder: 'options' is {self.options!r}, and not a class with the base refinery.runtime.recipe.Recipe.")


DECODERS = PluginKind("decoder", "infer.decoders", Decoder, "DECODER")


def find_decoder(name: str) -> Decoder[Any]:
    """The decoder of a name that the user wrote. Raises PluginError."""
    return plugins.find(DECODERS, name)
