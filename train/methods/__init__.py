"""How a model learns other than from single rows: DPO on pairs."""
