import logging
import subprocess
import sys
import warnings
from pathlib import Path

from refinery.runtime.run.library_messages import quiet_libraries

PROJECT = Path(__file__).parents[4]


def test_a_renamed_argument_of_a_library_is_not_the_users_business():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        quiet_libraries()
        warnings.warn("`a` is deprecated. Use `b`.", FutureWarning, stacklevel=1)
        warnings.warn("this number overflows", RuntimeWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["this number overflows"]


def test_deepspeed_may_still_warn(caplog):
    quiet_libraries()
    logger = logging.getLogger("DeepSpeed")
    logger.warning("Setting accelerator to CPU. If you have GPU or other accelerator, we were unable to detect it.")
    logger.warning("the optimizer's state does not fit")
    assert caplog.messages == ["the optimizer's state does not fit"]


def test_loading_a_model_writes_no_bars_into_a_file():
    quiet = "from refinery.runtime.run.command import configure_logging; configure_logging()"
    script = f"{quiet}; from refinery.llms.weights.checkpoint import load_base; load_base('refinery/demo/checkpoint')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=PROJECT, check=True)
    assert done.stdout + done.stderr == ""
