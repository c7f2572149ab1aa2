"""Formats of other engines: each module writes a folder and runs it (``python -m mt.export``)."""
