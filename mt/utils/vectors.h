// What the C++ of all packages shares: 16 numbers of 32 bits at a time.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <vector>

using Floats = std::vector<float>;

inline float sum(__m512 x) { return _mm512_reduce_add_ps(x); }

// The lanes of 16 that hold something when ``left`` numbers are left.
inline __mmask16 lanes(int64_t left) {
    return left >= 16 ? 0xffff : left <= 0 ? 0 : (1u << left) - 1;
}

// e^x for x <= 0, by the polynomial of Cephes; NaN stays NaN.
inline __m512 exp_negative(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-87.3f), x);  // of a NaN, max gives its second argument
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 f = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    f = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), f);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f})
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(f, f), _mm512_add_ps(f, _mm512_set1_ps(1.f)));
    return _mm512_scalef_ps(p, n);
}
