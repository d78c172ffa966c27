"""The families of models that can be trained: how each is loaded, adapted and saved."""
