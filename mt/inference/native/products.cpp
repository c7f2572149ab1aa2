// Matrix products in 8 bits, by the instruction vpdpbusd (AVX512-VNNI).
//
// Each row of x is rounded between its own extremes. So a row's result is the same whatever other
// rows there are: sums of whole numbers are exact, and the rest is done alike for every row.
#include "products.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

// x ~ (number - zero) * scale, row by row.
struct Rounded {
    std::vector<uint8_t> numbers;  // [R, in]
    Floats scales;                 // [R]
    std::vector<int32_t> zeros;    // [R]
};

struct Extremes {
    float least, greatest;  // 0 is between them
    bool finite;
};

Extremes extremes(const float* x, int64_t n) {
    constexpr int INFINITE_OR_NAN = 0x99;
    __m512 least = _mm512_setzero_ps(), greatest = least;
    __mmask16 bad = 0;
    for (int64_t i = 0; i < n; i += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(lanes(n - i), x + i);
        least = _mm512_min_ps(least, v), greatest = _mm512_max_ps(greatest, v);
        bad |= _mm512_fpclass_ps_mask(v, INFINITE_OR_NAN);
    }
    return {_mm512_reduce_min_ps(least), _mm512_reduce_max_ps(greatest), bad == 0};
}

// As PyTorch rounds a whole matrix: 0 is exact, halves go to the even number.
void round_row(const float* x, int64_t n, uint8_t* numbers, float* scale, int32_t* zero) {
    const Extremes found = extremes(x, n);
    if (!found.finite) {  // whole numbers would hide it: make all outputs of the row NaN
        *scale = NAN, *zero = 0;
        std::memset(numbers, 0, n);
        return;
    }
    *scale = (found.greatest - found.least) / 255.f;
    if (!(*scale > 1e-30f)) *scale = 0.1f;  // a row of zeros
    *zero = (int32_t)std::nearbyint(-found.least / *scale);
    const __m512 inverse = _mm512_set1_ps(1.f / *scale);
    const __m512i zeros = _mm512_set1_epi32(*zero);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 m = lanes(n - i);
        const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), inverse);
        __m512i number = _mm512_add_epi32(_mm512_cvtps_epi32(v), zeros);
        number = _mm512_max_epi32(number, _mm512_setzero_si512());
        _mm_mask_storeu_epi8(numbers + i, m, _mm512_cvtusepi32_epi8(number));
    }
}

void round_rows(const float* x, int64_t R, int64_t n, Rounded& out) {
    out.numbers.resize(R * n), out.scales.resize(R), out.zeros.resize(R);
    for (int64_t r = 0; r < R; ++r)
        round_row(x + r * n, n, &out.numbers[r * n], &out.scales[r], &out.zeros[r]);
}

// sum += u8 x * s8 w, four products to a lane. GCC 12 copies registers around the intrinsic.
inline void dot(__m512i& sum, __m512i x, __m512i w) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
}

constexpr int ROWS = 6;  // at a time: their sums and four vectors of W fill the 32 registers

// y[r .. r + MR][n .. n + 64]. All loops over sums are unrolled, or GCC keeps them in memory.
template <int MR>
void block(const Linear& linear, const Rounded& x, int64_t r, int64_t n, Mode mode, float* y) {
    const int64_t in = linear.in, out = linear.out;
    __m512i sums[MR][4];
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) sums[i][j] = _mm512_setzero_si512();

    const int8_t* W = linear.W + n * in;
    const uint8_t* numbers = x.numbers.data() + r * in;
    for (int64_t k = 0; k < in; k += 4, W += 256) {
        const __m512i w0 = _mm512_loadu_si512(W), w1 = _mm512_loadu_si512(W + 64),
                      w2 = _mm512_loadu_si512(W + 128), w3 = _mm512_loadu_si512(W + 192);
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) {
            int32_t four;
            std::memcpy(&four, numbers + i * in + k, 4);
            const __m512i v = _mm512_set1_epi32(four);
            dot(sums[i][0], v, w0), dot(sums[i][1], v, w1);
            dot(sums[i][2], v, w2), dot(sums[i][3], v, w3);
        }
    }

#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const int64_t first = n + 16 * j;
        const __mmask16 m = lanes(out - first);
        const __m512 scales = _mm512_loadu_ps(linear.scales + first);
        const __m512i sums_of_W = _mm512_loadu_si512(linear.sums + first);
        __m512 bias = _mm512_setzero_ps();
        if (linear.bias) bias = _mm512_maskz_loadu_ps(m, linear.bias + first);
#pragma GCC unroll 8
        for (int i = 0; i < MR; ++i) {
            const __m512i zero = _mm512_set1_epi32(x.zeros[r + i]);
            const __m512i s = _mm512_sub_epi32(sums[i][j], _mm512_mullo_epi32(zero, sums_of_W));
            const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[r + i]));
            __m512 v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), scale, bias);
            float* to = y + (r + i) * out + first;
            if (mode == RELU) v = _mm512_max_ps(_mm512_setzero_ps(), v);  // NaN stays
            if (mode == ADD) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, to));
            _mm512_mask_storeu_ps(to, m, v);
        }
    }
}

constexpr decltype(&block<1>) BLOCKS[ROWS] = {block<1>, block<2>, block<3>,
                                              block<4>, block<5>, block<6>};
constexpr int64_t ENOUGH = 1 << 20;  // multiplications that are worth a second thread

}  // namespace

void multiply(const Linear& linear, const float* x, int64_t R, Mode mode, float* y,
              int64_t threads) {
    thread_local Rounded own;
    Rounded& rounded = own;  // of this thread, for all threads of the loop
    round_rows(x, R, linear.in, rounded);
    if (R * linear.in * linear.out < ENOUGH) threads = 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < linear.out; n += 64)
        for (int64_t r = 0; r < R; r += ROWS)
            BLOCKS[std::min<int64_t>(R - r, ROWS) - 1](linear, rounded, r, n, mode, y);
}

extern "C" void mt_multiply(const Linear* linear, const float* x, int64_t R, int64_t mode, float* y,
                            int64_t threads) {
    multiply(*linear, x, R, (Mode)mode, y, threads);
}
