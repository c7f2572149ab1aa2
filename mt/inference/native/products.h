// What the files of this folder share. The functions with C names are called from Python by ctypes.
//
// Shapes: R rows, d_model, h heads of ``width`` numbers, V vocabulary.
#pragma once

#include "vectors.h"

// W [out, in] in 8 bits and b [out]. W stands in blocks of 64 outputs: [out / 64, in / 4, 64, 4],
// so that the four weights that one instruction multiplies and adds are neighbours.
struct Linear {
    const int8_t* W;
    const float* scales;  // [out], filled up to a multiple of 64, as W is
    const int32_t* sums;  // [out], the sum of each row of W
    const float* bias;    // [out] or null
    int64_t in, out;      // in is a multiple of 4
};

enum Mode { PLAIN, RELU, ADD };

// x [R, in] -> y [R, out]: x W^T + b; of RELU, max(0, that); of ADD, y + that.
void multiply(const Linear& linear, const float* x, int64_t R, Mode mode, float* y,
              int64_t threads);
