"""Other engines' formats: each module writes a folder and runs it. ``python -m mt.export``."""


def install(extra: str) -> str:
    """How to get what an engine needs."""
    return f"pip install -e '.[{extra}]' in the project's folder"
