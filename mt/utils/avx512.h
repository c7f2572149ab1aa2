// The functions of vectors.h and of the .cpp files for AVX-512 with VNNI.
#pragma once

using Vector = __m512;
using Ints = __m512i;

inline __mmask16 lanes(int64_t left) {
    return left >= 16 ? 0xffff : left <= 0 ? 0 : (1u << left) - 1;
}

inline Vector fill(float x) { return _mm512_set1_ps(x); }
inline Vector load(const float* x) { return _mm512_loadu_ps(x); }
inline Vector load(const float* x, int64_t left) { return _mm512_maskz_loadu_ps(lanes(left), x); }
inline void store(float* x, Vector v) { _mm512_storeu_ps(x, v); }
inline void store(float* x, int64_t left, Vector v) { _mm512_mask_storeu_ps(x, lanes(left), v); }

inline Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
inline Vector sub(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
inline Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
inline Vector div(Vector a, Vector b) { return _mm512_div_ps(a, b); }
inline Vector min(Vector a, Vector b) { return _mm512_min_ps(a, b); }  // as max
inline Vector max(Vector a, Vector b) { return _mm512_max_ps(a, b); }  // b where one is a NaN
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline Vector multiply_sub(Vector a, Vector b, Vector c) { return _mm512_fmsub_ps(a, b, c); }
inline Vector minus_product(Vector c, Vector a, Vector b) { return _mm512_fnmadd_ps(a, b, c); }
inline Vector round(Vector x) { return _mm512_roundscale_ps(x, 8); }  // halves to the even number
inline Vector times_power_of_2(Vector x, Vector n) { return _mm512_scalef_ps(x, n); }

// ``a`` in the lanes that are not among the first ``left``.
inline Vector add_first(Vector a, int64_t left, Vector b) {
    return _mm512_mask_add_ps(a, lanes(left), a, b);
}
inline Vector max_first(Vector a, int64_t left, Vector b) {
    return _mm512_mask_max_ps(a, lanes(left), a, b);
}

inline float sum(Vector x) { return _mm512_reduce_add_ps(x); }
inline float least(Vector x) { return _mm512_reduce_min_ps(x); }
inline float greatest(Vector x) { return _mm512_reduce_max_ps(x); }

inline Vector load(const BFloat16* x, int64_t left) {
    const __m256i halves = _mm256_maskz_loadu_epi16(lanes(left), x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// Rounds to the nearest, ties to even, as PyTorch does. NaN stays NaN.
inline void store(BFloat16* x, int64_t left, Vector v) {
    const Ints bits = _mm512_castps_si512(v);
    const Ints odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    Ints up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    up = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                               _mm512_set1_epi32(0x7fc00000));
    _mm256_mask_storeu_epi16(x, lanes(left), _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

// Whole numbers.

inline Ints fill(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints load(const int32_t* x) { return _mm512_loadu_si512(x); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints mul(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
inline Ints exclusive_or(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
inline Ints shift_left(Ints x, int bits) { return _mm512_slli_epi32(x, bits); }
inline Ints shift_right(Ints x, int bits) { return _mm512_srli_epi32(x, bits); }  // zeros come in
// v in the lanes whose number is ``least`` or more, else 0.
inline Vector where_least(Ints numbers, int32_t least, Vector v) {
    return _mm512_maskz_mov_ps(_mm512_cmpge_epi32_mask(numbers, _mm512_set1_epi32(least)), v);
}
inline Ints to_ints(Vector x) { return _mm512_cvtps_epi32(x); }  // halves to the even number
inline Vector to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }

// Products in 8 bits: of four neighbours among a row's inputs, in all lanes, with the four weights
// that each of 16 outputs has for them.

using Byte = uint8_t;
using FourInputs = __m512i;
using FourWeights = __m512i;

// 16 numbers, limited to 0 .. 255. There is room for 16.
inline void store_bytes(Byte* to, int64_t left, Ints x) {
    x = _mm512_max_epi32(x, _mm512_setzero_si512());
    _mm_mask_storeu_epi8(to, lanes(left), _mm512_cvtusepi32_epi8(x));
}

inline FourInputs load_inputs(const Byte* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
}

inline FourWeights load_weights(const int8_t* W) { return _mm512_loadu_si512(W); }

// GCC 12 copies registers around the intrinsic.
inline void add_products(Ints& sum, FourInputs x, FourWeights w) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
}

// Rows at a time in a matrix product, and vectors of 16 outputs: the sums and four vectors of weights
// fill 32 registers.
constexpr int INT8_ROWS = 6, FLOAT_ROWS = 6;
constexpr int int8_vectors(int) { return 4; }
constexpr int float_vectors(int) { return 4; }
// Multiplications that are worth a second thread, as measured for int8.
constexpr int64_t INT8_ENOUGH = 1 << 20, FLOAT_ENOUGH = 1 << 17;
