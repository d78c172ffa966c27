"""The version, which the wheel, `refinery --version` and `run.json` read here."""

__version__ = "0.1.0"
