"""How sure an answer is: the signals of a finished prediction, their calibrated probability, and the threshold that keeps a promise."""
