"""Corpora of any size, translated, scored or filtered block by block by the actors of Ray Data."""
