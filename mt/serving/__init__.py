"""A translation server: HTTP interfaces and a page around one continuously running search."""
