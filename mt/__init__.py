"""English→German machine translation with the Transformer of *Attention Is All You Need*."""
