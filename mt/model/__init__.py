"""The Transformer: a plain reference, the fast one, its weights on disk."""
