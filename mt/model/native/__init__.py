"""What training on a CPU computes in C++."""
