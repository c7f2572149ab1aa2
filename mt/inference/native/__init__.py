"""The Transformer in C++, in float32 and in 8 bits: ``mt.utils.native`` says where it runs."""
