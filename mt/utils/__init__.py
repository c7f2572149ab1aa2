"""What the other packages share and that knows nothing of translation."""
