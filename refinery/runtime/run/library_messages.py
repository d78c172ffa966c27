"""What libraries print on their own: only what a user can act on is shown."""

import logging
import os
import sys
import warnings

_OF_OTHER_MACHINES = "Setting accelerator to CPU"  # DeepSpeed, whenever it is imported without a GPU


def quiet_libraries() -> None:
    """Leave out libraries' notes to their developers, duplicates, and progress bars that a file would be full of."""
    warnings.filterwarnings("ignore", category=FutureWarning)  # what a library calls, and not the user, will be renamed
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it lacks optional kernels, also where nothing is quantized
    logging.getLogger("huggingface_hub").propagate = False  # it prints its messages itself
    logging.getLogger("DeepSpeed").addFilter(lambda record: _OF_OTHER_MACHINES not in record.getMessage())
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # also for the loading of weights
