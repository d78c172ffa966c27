"""How likely a model finds an action at a node of a path, whichever way the path is written."""

import math

from refinery.contract.formats import SEARCH_ACTIONS
from refinery.contract.path_format import PathFormat
from refinery.llms.base import Context

_MOST = -1e-9  # of a call's log-probability, so that an answer is never impossible


async def action_logprob(action: str, context: Context, form: PathFormat) -> float:
    """The log-probability of the text that opens the action. An answer that nothing opens is whatever is not a call."""
    if opening := form.opening(action):
        return sum(await context.score(opening))
    call, *_ = await context.score(form.opening(SEARCH_ACTIONS[0])[:1])
    return math.log1p(-math.exp(min(call, _MOST)))
