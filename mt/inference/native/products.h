// What the files of this folder share. The functions with C names are called from Python by ctypes.
//
// Shapes: R rows, d_model, h heads of ``width`` numbers, V vocabulary.
#pragma once

#include <algorithm>

#include "vectors.h"

// W [out, in] and b [out]. W is in float32 or in 8 bits, filled up to a multiple of 64 outputs.
struct Linear {
    const float* W;         // [out / 16, in, 16], so that one vector multiplies neighbours; or null
    const int8_t* numbers;  // [out / 64, in / 4, 64, 4]: one instruction takes four of an output
    const float* scales;    // [out], of the numbers
    const int32_t* sums;    // [out], of each row of the numbers
    const float* bias;      // [out] or null
    int64_t in, out;        // in is a multiple of 4 where there are numbers
};

enum Mode { PLAIN, RELU, ADD };

// x [R, in] -> y [R, out]: x W^T + b; of RELU, max(0, that); of ADD, y + that. The result of a row
// is the same whatever other rows there are.
void multiply_float32(const Linear& linear, const float* x, int64_t R, Mode mode, float* y,
                      int64_t threads);
void multiply_int8(const Linear& linear, const float* x, int64_t R, Mode mode, float* y,
                   int64_t threads);

inline void multiply(const Linear& linear, const float* x, int64_t R, Mode mode, float* y,
                     int64_t threads) {
    (linear.W ? multiply_float32 : multiply_int8)(linear, x, R, mode, y, threads);
}

// What the two have in common.

// 16 outputs of a row, without the mode -> to, where ``left`` outputs are left.
inline void finish(Vector v, Mode mode, float* to, int64_t left) {
    if (mode == RELU) v = max(fill(0.f), v);  // NaN stays
    if (mode == ADD) v = add(v, load(to, left));
    store(to, left, v);
}

// block(rows, r, n) for all of y: outputs n to n + 64 of at most MOST rows from r on. ``bytes`` is
// the size of a row of x; a second thread is worth ENOUGH multiplications.
template <int MOST, int64_t ENOUGH, class Block>
void for_each_block(const Linear& linear, int64_t R, int64_t bytes, int64_t threads,
                    const Block& block) {
    constexpr int64_t CACHE = 1 << 18;  // bytes of x that stay in a core's cache
    const int64_t part = std::max<int64_t>(CACHE / bytes / MOST, 1) * MOST;
    const int64_t blocks = (R + part - 1) / part * ((linear.out + 63) / 64);
    threads = R * linear.in * linear.out < ENOUGH ? 1 : std::min(threads, blocks);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t first = 0; first < R; first += part)
        for (int64_t n = 0; n < linear.out; n += 64) {
            const int64_t end = std::min(first + part, R);
            for (int64_t r = first; r < end; r += MOST)
                with_constant<MOST>(end - r, [&](auto rows) { block(rows, r, n); });
        }
}
