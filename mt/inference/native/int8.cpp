// Matrix products in 8 bits.
//
// Each row of x is rounded between its own extremes. So a row's result is the same whatever other
// rows there are: sums of whole numbers are exact, and the rest is done alike for every row.
#include <cmath>

#include "products.h"

namespace {

// x ~ (number - zero) * scale, row by row.
struct Rounded {
    std::vector<Byte> numbers;   // [R, in], and room for 16
    Floats scales;               // [R]
    std::vector<int32_t> zeros;  // [R]
};

struct Extremes {
    float least, greatest;  // 0 is between them
    bool finite;
};

Extremes extremes(const float* x, int64_t n) {
    Vector low = fill(0.f), high = low, odd = low;
    for (int64_t i = 0; i < n; i += 16) {
        const Vector v = load(x + i, n - i);
        low = min(low, v), high = max(high, v);
        odd = add(odd, sub(v, v));  // a NaN, if v is infinite or a NaN
    }
    return {least(low), greatest(high), sum(odd) == 0};
}

// As PyTorch rounds a whole matrix: 0 is exact, halves go to the even number.
void round_row(const float* x, int64_t n, Byte* numbers, float* scale, int32_t* zero) {
    const Extremes found = extremes(x, n);
    if (!found.finite) {  // whole numbers would hide it: make all outputs of the row NaN
        *scale = NAN, *zero = 0;
        std::fill(numbers, numbers + n, 0);
        return;
    }
    *scale = (found.greatest - found.least) / 255.f;
    if (!(*scale > 1e-30f)) *scale = 0.1f;  // a row of zeros
    *zero = (int32_t)std::nearbyint(-found.least / *scale);
    const Vector inverse = fill(1.f / *scale);
    for (int64_t i = 0; i < n; i += 16) {
        const Vector v = mul(load(x + i, n - i), inverse);
        store_bytes(numbers + i, n - i, add(to_ints(v), fill(*zero)));
    }
}

void round_rows(const float* x, int64_t R, int64_t n, Rounded& out) {
    out.numbers.resize(R * n + 16), out.scales.resize(R), out.zeros.resize(R);
    for (int64_t r = 0; r < R; ++r)  // in this order: the end of a row may run into the next one
        round_row(x + r * n, n, &out.numbers[r * n], &out.scales[r], &out.zeros[r]);
}

// y[r .. r + MR][n .. n + 64]. All loops over sums are unrolled, or GCC keeps them in memory.
template <int MR>
void block(const Linear& linear, const Rounded& x, int64_t r, int64_t n, Mode mode, float* y) {
    constexpr int VECTORS = int8_vectors(MR);
    const int64_t in = linear.in, out = linear.out;
    for (int64_t first = n; first < n + 64; first += 16 * VECTORS) {
        Ints sums[MR][VECTORS];
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) sums[i][j] = fill(0);

        const int8_t* W = linear.numbers + n * in + 4 * (first - n);
        const Byte* numbers = x.numbers.data() + r * in;
        for (int64_t k = 0; k < in; k += 4, W += 256) {
            FourWeights w[VECTORS];
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) w[j] = load_weights(W + 64 * j);
#pragma GCC unroll 8
            for (int i = 0; i < MR; ++i) {
                const FourInputs v = load_inputs(numbers + i * in + k);
#pragma GCC unroll 4
                for (int j = 0; j < VECTORS; ++j) add_products(sums[i][j], v, w[j]);
            }
        }

#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) {
            const int64_t here = first + 16 * j, left = out - here;
            const Vector scales = load(linear.scales + here);
            const Ints sums_of_W = load(linear.sums + here);
            const Vector bias = linear.bias ? load(linear.bias + here, left) : fill(0.f);
#pragma GCC unroll 8
            for (int i = 0; i < MR; ++i) {
                const Ints s = sub(sums[i][j], mul(fill(x.zeros[r + i]), sums_of_W));
                const Vector scale = mul(scales, fill(x.scales[r + i]));
                const Vector v = multiply_add(to_floats(s), scale, bias);
                finish(v, mode, y + (r + i) * out + here, left);
            }
        }
    }
}

}  // namespace

void multiply_int8(const Linear& linear, const float* x, int64_t R, Mode mode, float* y,
                   int64_t threads) {
    thread_local Rounded own;
    const Rounded& rounded = own;  // of this thread, for all threads of the loop
    round_rows(x, R, linear.in, own);
    for_each_block<INT8_ROWS, INT8_ENOUGH>(
        linear, R, linear.in * sizeof(Byte), threads, [&](auto rows, int64_t r, int64_t n) {
            block<rows>(linear, rounded, r, n, mode, y);
        });
}
