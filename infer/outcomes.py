"""What becomes of a question that met an error: a row that says so, or the end of the run where every other would meet the same."""

import errno
import logging
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

logger = logging.getLogger(__name__)

# Searches, or questions with an error that nobody foresaw, that fail in a row before the run stops.
MOST_IN_A_ROW = 10
# A wrong key, a server that is gone, a model that cannot do what it is asked, a checkpoint or folder that cannot be used.
_EVERYONES = (UnusableEndpoint, IncapableModelError, CheckpointError, RecipeError, PluginError, RunDirError)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (RecordError, "unusable_question"),
    (RetrievalError, "search_failed"),
    (LLMError, "not_served"),
)


class SearchesFailing(RetrievalError):
    """So many searches have failed in a row that the retriever, and no question, is at fault."""


class SearchHealth:
    """Counts the searches that fail in a row, whichever questions they are for."""

    def __init__(self) -> None:
        self._failed = 0

    def succeeded(self) -> None:
        """A search found what there is."""
        self._failed = 0

    def failed(self, error: RetrievalError) -> None:
        """A search could not be made. Raises SearchesFailing for one too many."""
        self._failed += 1
        if self._failed >= MOST_IN_A_ROW:
            raise SearchesFailing(f"{self._failed} searches in a row failed, so the run stops: {error} Go on with --resume.") from None


class Outcomes:
    """Tells the errors that end one question from those that end the run."""

    def __init__(self) -> None:
        self._unforeseen = 0

    def answered(self, prediction: Prediction) -> None:
        """A question came to its end."""
        if prediction.failed is None:
            self._unforeseen = 0

    def fault(self, question_id: str, error: Exception) -> str:
        """`reason: detail` of an error that is this question's own. Raises it, or a RefineryError, where the run must stop."""
        if isinstance(error, (*_EVERYONES, SearchesFailing)):
            raise error
        if isinstance(error, OSError) and error.errno in _FULL:
            raise RunDirError(f"{error.filename or 'a file'}: cannot be written ({error.strerror}). Free some space and pass --resume.")
        detail = " ".join(str(error).split())
        if isinstance(error, RefusedRequest):
            return f"{error.reason}: {detail}"
        if isinstance(error, RefineryError):
            return f"{next((reason for kind, reason in _REASONS if isinstance(error, kind)), type(error).__name__)}: {detail}"
        logger.debug("question %r", question_id, exc_info=error)
        self._unforeseen += 1
        if self._unforeseen >= MOST_IN_A_ROW:
            self._stop(error, detail)
        return f"{type(error).__name__}: {detail}"

    def _stop(self, error: Exception, detail: str) -> NoReturn:
        raise LLMError(
            f"{self._unforeseen} questions in a row ended in an error that was not foreseen, so the run stops; the last is "
            f"{type(error).__name__}: {detail}. --traceback shows where it comes from; --resume asks them again."
        ) from error
