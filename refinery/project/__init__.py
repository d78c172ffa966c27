"""A project: from a folder of documents to a served, evaluated model. `new` writes it, `run` does every step that is not up to date."""
