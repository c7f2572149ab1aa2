// Matrix products in float32. An output is the sum of its products from the first to the last input,
// whatever the registers hold besides: so a row's result is the same in any company.
#include "products.h"

namespace {

// y[r .. r + MR][n .. n + 64]. All loops over sums are unrolled, or GCC keeps them in memory.
template <int MR>
void block(const Linear& linear, const float* x, int64_t r, int64_t n, Mode mode, float* y) {
    constexpr int VECTORS = float_vectors(MR);
    const int64_t in = linear.in, out = linear.out;
    for (int64_t first = n; first < std::min(n + 64, out); first += 16 * VECTORS) {
        Vector sums[MR][VECTORS];
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) sums[i][j] = fill(0.f);

        const float *W = linear.W + first * in, *row = x + r * in;
        for (int64_t k = 0; k < in; ++k, W += 16, ++row) {
            Vector w[VECTORS];
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) w[j] = load(W + j * in * 16);
#pragma GCC unroll 8
            for (int i = 0; i < MR; ++i) {
                const Vector v = fill(row[i * in]);
#pragma GCC unroll 4
                for (int j = 0; j < VECTORS; ++j) sums[i][j] = multiply_add(v, w[j], sums[i][j]);
            }
        }

#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) {
            const int64_t here = first + 16 * j, left = out - here;
            const Vector bias = linear.bias ? load(linear.bias + here, left) : fill(0.f);
#pragma GCC unroll 8
            for (int i = 0; i < MR; ++i)
                finish(add(sums[i][j], bias), mode, y + (r + i) * out + here, left);
        }
    }
}

}  // namespace

void multiply_float32(const Linear& linear, const float* x, int64_t R, Mode mode, float* y,
                      int64_t threads) {
    for_each_block<FLOAT_ROWS, FLOAT_ENOUGH>(
        linear, R, linear.in * sizeof(float), threads, [&](auto rows, int64_t r, int64_t n) {
            block<rows>(linear, x, r, n, mode, y);
        });
}
