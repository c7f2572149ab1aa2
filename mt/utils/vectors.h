// What the C++ of all packages shares: 16 numbers of 32 bits at a time, of which a lane holds one.
//
// They are in one register of AVX-512, or in two of AVX2. Both give the same bits: what happens to
// a lane is the same, and so is the order of sums. Where ``left`` is given, only that many
// lanes are read or written, none if it is below 0, and the others of what is loaded are 0. For
// BFloat16 it is 1 or more.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

using Floats = std::vector<float>;

// Numbers of 16 bits: the upper half of a float.
struct BFloat16 {
    uint16_t bits;
};

#ifdef __AVX512VNNI__
#include "avx512.h"
#else
#include "avx2.h"
#endif

inline float greatest(const float* x, int64_t n) {
    Vector top = fill(-INFINITY);
    for (int64_t i = 0; i < n; i += 16) top = max_first(top, n - i, load(x + i, n - i));
    return greatest(top);
}

// e^x for x <= 0, by the polynomial of Cephes; NaN stays NaN.
inline Vector exp_negative(Vector x) {
    x = max(fill(-87.3f), x);  // of a NaN, max gives its second argument
    const Vector n = round(mul(x, fill(1.44269504f)));
    Vector f = minus_product(x, n, fill(0.693359375f));
    f = minus_product(f, n, fill(-2.12194440e-4f));
    Vector p = fill(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f})
        p = multiply_add(p, f, fill(c));
    p = multiply_add(p, mul(f, f), add(f, fill(1.f)));
    return times_power_of_2(p, n);
}

// f(n) for an n of 1 to MOST, or else f(MOST); f gets a constant.
template <int MOST, class F>
void with_constant(int64_t n, const F& f) {
    if constexpr (MOST > 1)
        if (n < MOST) return with_constant<MOST - 1>(n, f);
    f(std::integral_constant<int, MOST>());
}
