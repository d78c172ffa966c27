"""The keys of a recipe for `refinery evaluate-modules`: those of an inference recipe, and the module that runs instead of its decoder."""

import dataclasses
import logging
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from pydantic import Field

from infer.decoders.base import Decoder, SubModelRole
from infer.modules.base import Module, find_module, run_alone
from infer.modules.kinds.judge import ROLE as JUDGE
from infer.recipe import InferRecipe
from refinery.contract.records import Question
from refinery.errors import RecordError

logger = logging.getLogger(__name__)


class ModuleRecipe(InferRecipe):
    """One module of the decoder, alone, on annotated questions. `sub_models.judge` judges texts that cannot be compared by words."""

    module: str = Field(description="a module of the decoder, such as main: infer/modules has a file for each decoder")

    def check(self, where: str) -> None:
        """Check also that the decoder has the module."""
        super().check(where)
        self.found_module()

    def found_module(self) -> Module:
        """The module. Raises RecipeError, or PluginError for an unknown name."""
        with self.at("module"):
            return find_module(self.decoder, self.module)

    @property
    def needs_annotations(self) -> bool:
        """Whether only annotated questions can be measured. A judge may also assess others."""
        return not (self.found_module().kind.judged_alone and JUDGE in self.sub_models)

    def each_question(self) -> Iterator[Question]:
        """The questions that are annotated for the module, or all if a judge needs no annotations.

        Raises RecordError, at the end, if there are none.
        """
        kind, count, left = self.found_module().kind, 0, 0
        for question in super().each_question():
            count += 1
            if not self.needs_annotations or kind.annotated(question):
                yield question
            else:
                left += 1
        if left and left == count:
            raise RecordError(
                f"{self.questions[0]}: none of {count} questions has {kind.needs}, which module '{self.module}' is measured by. "
                "Name rows that have them, such as MuSiQue's or 2WikiMultihopQA's."
            )
        if left:
            _say_left_out(left, count, kind.needs)

    def found_decoder(self) -> Decoder[Any]:
        """The decoder, replaced by its module, so that only the module's roles are needed."""
        decoder, module = super().found_decoder(), self.found_module()

        def roles(options: Any) -> dict[str, SubModelRole]:
            found = {name: role if name in module.roles else SubModelRole() for name, role in decoder.roles(options).items()}
            return found | {JUDGE: SubModelRole(played_by_model=False)}

        alone = dataclasses.replace(decoder, decode=partial(run_alone, module), roles=roles, plan=None)
        return alone if module.loads else dataclasses.replace(alone, load=_load_nothing)

    def trimmed(self) -> "ModuleRecipe":
        """The recipe with only those sub-models that the module uses."""
        used = {*self.found_module().roles, JUDGE}
        return self.model_copy(update={"sub_models": {role: model for role, model in self.sub_models.items() if role in used}})


@cache
def _say_left_out(left: int, count: int, needs: str) -> None:
    """Log the number of skipped questions only once, although they are read several times."""
    logger.info("%d of %d questions have no %s and are left out.", left, count, needs)


def _load_nothing(options: Any) -> None:
    return
