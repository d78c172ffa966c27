"""The families of models that are trained, and what is loaded, adapted and saved of them."""
