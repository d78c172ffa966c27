"""What each labelling task is, wherever it is used: in distillation, training, inference and on a model's card."""
