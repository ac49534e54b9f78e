"""Chat history in SQLite: storage, search, export and import. Nothing here knows of Qt or of models."""
