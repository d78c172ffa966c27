"""WizardLM's instructions (`alpaca_evol_instruct_70k.json`), which an LLM made harder step by step, with its replies."""

from refinery.questions.base import reader_of
from refinery.questions.gpt4_alpaca import AlpacaRow, to_question

READER = reader_of(AlpacaRow, lambda row: to_question(row, "wizardlm"), repositories=("WizardLMTeam/WizardLM_evol_instruct_70k",))
