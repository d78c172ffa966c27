"""Arguments with which no server starts, each with what the user reads."""

import pytest

UNSERVABLE = [
    pytest.param(["--host", "0.0.0.0"], "others can reach this", id="host"),
    pytest.param(["--api-key-env", "NOT_SET_ANYWHERE"], "this variable is not set", id="variable"),
    pytest.param(["--api-key-env", "sk-abcdefgh12345678"], "--api-key-env: is not the name of an environment variable", id="key"),
    pytest.param(["--port", "taken"], "cannot bind to this address", id="taken port"),
    pytest.param(["--port", "99999"], "cannot bind to this address", id="no port"),
]
