"""The Transformer in 8 bits, in C++: see ``build`` for where it runs."""
