"""Decide the effect of an error: it fails a single question, or stops the run if it would affect every other question too."""

import errno
import logging
import sys
from typing import NoReturn

from refinery.contract.trace import Prediction
from refinery.errors import (
    CheckpointError,
    IncapableModelError,
    LLMError,
    PluginError,
    RecipeError,
    RecordError,
    RefineryError,
    RetrievalError,
    RunDirError,
)
from refinery.llms.served.endpoint import RefusedRequest, UnusableEndpoint
from refinery.llms.served.paid.budget import BudgetExhausted

logger = logging.getLogger(__name__)

# How many searches, or questions with an unexpected error, may fail in a row before the run stops.
MOST_IN_A_ROW = 10
# Errors that affect every question: no money left, a wrong key, an unreachable server, an incapable model, an unusable folder.
_EVERYONES = (BudgetExhausted, UnusableEndpoint, IncapableModelError, CheckpointError, RecipeError, PluginError, RunDirError)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (RecordError, "unusable_question"),
    (RetrievalError, "search_failed"),
    (LLMError, "not_served"),
)


class SearchesFailing(RetrievalError):
    """Too many searches have failed in a row, so the fault is in the retriever and not in a question."""


class SearchHealth:
    """Counts the searches that fail in a row, across all questions."""

    def __init__(self) -> None:
        self._failed = 0

    def succeeded(self) -> None:
        """Record a successful search, which resets the count."""
        self._failed = 0

    def failed(self, error: RetrievalError) -> None:
        """Record a failed search. Raises SearchesFailing when `MOST_IN_A_ROW` have failed in a row."""
        self._failed += 1
        if self._failed >= MOST_IN_A_ROW:
            raise SearchesFailing(f"{self._failed} searches in a row failed, so the run stops: {error} Resume it with --resume.") from None


class Outcomes:
    """Distinguishes errors that fail one question from errors that stop the run."""

    def __init__(self) -> None:
        self._unforeseen = 0

    def answered(self, prediction: Prediction) -> None:
        """Record a finished question; one that succeeded resets the count of unexpected errors."""
        if prediction.failed is None:
            self._unforeseen = 0

    def fault(self, question_id: str, error: Exception) -> str:
        """`reason: detail` of an error that affects only this question. Raises it, or a RefineryError, if the run must stop."""
        if isinstance(error, (*_EVERYONES, SearchesFailing)):
            raise error
        if isinstance(error, OSError) and error.errno in _FULL:
            raise RunDirError(f"{error.filename or 'a file'}: cannot be written ({error.strerror}). Free some space and pass --resume.")
        detail = " ".join(str(error).split())
        if isinstance(error, RefusedRequest):
            return f"{error.reason}: {detail}"
        if isinstance(error, RefineryError):
            return f"{next((reason for kind, reason in _REASONS if isinstance(error, kind)), type(error).__name__)}: {detail}"
        if isinstance(error, RuntimeError) and "torch" in sys.modules:
            from refinery.llms.engine.out_of_memory import is_out_of_memory, memory_now

            if is_out_of_memory(error):
                said = f"the device ran out of memory.{memory_now()} Lower kv_tokens or questions_in_flight, then --resume."
                raise LLMError(said) from error
        logger.debug("question %r", question_id, exc_info=error)
        self._unforeseen += 1
        if self._unforeseen >= MOST_IN_A_ROW:
            self._stop(error, detail)
        return f"{type(error).__name__}: {detail}"

    def _stop(self, error: Exception, detail: str) -> NoReturn:
        raise LLMError(
            f"{self._unforeseen} questions in a row failed with an unexpected error, so the run stops; the last one is "
            f"{type(error).__name__}: {detail}. Pass --traceback to see where it comes from, and --resume to ask them again."
        ) from error
