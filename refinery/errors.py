"""The errors a user may meet. Each message says where, what with its value, and what to do."""


class RefineryError(Exception):
    """Base of every error that the command shows as one line with exit code 2."""


class RecipeError(RefineryError, ValueError):
    """A recipe that cannot be run as written."""


class RecordError(RefineryError, ValueError):
    """A data file or row that cannot be used."""


class UnwritableError(RecordError):
    """A row whose trained text the tokenizer cannot write."""


class PluginError(RecipeError):
    """A part that a recipe names (a decoder, task, retriever, reader, metric, ...) and that is missing, or is not what it should be."""


class CheckpointError(RefineryError, ValueError):
    """A checkpoint or adapter that disagrees with its manifest, its base model or the recipe."""


class LLMError(RefineryError, RuntimeError):
    """A model or endpoint that did not answer as it must."""


class IncapableModelError(LLMError):
    """A model, or an endpoint, that cannot do what a decoder asks of it, whatever the question."""


class RetrievalError(RefineryError, RuntimeError):
    """A search that could not be made, or an index that is not what it was."""


class RunDirError(RefineryError, ValueError):
    """A run directory that is missing, unfinished or in the way."""


class HubError(RefineryError, RuntimeError):
    """A hub that refused, could not be reached, or does not give back what was pushed."""


class TrainingError(RefineryError, RuntimeError):
    """Training that cannot go on: a loss that is no number, or a checkpoint that does not come back as it was saved."""


class Stopped(RefineryError):
    """A run that was told to stop, has saved where it is, and can go on with `--resume`."""
