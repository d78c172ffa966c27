"""Questions in, ledger and record out."""
