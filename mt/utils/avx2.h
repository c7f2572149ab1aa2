// The functions of vectors.h and of the .cpp files for AVX2, with the same results as avx512.h.
#pragma once

struct Vector {
    __m256 low, high;
};
struct Ints {
    __m256i low, high;
};

inline Ints lanes(int64_t left) {  // all bits of a lane that is used
    static const int32_t bits[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                     -1, -1, -1, -1, -1};  // and 16 zeros
    const int32_t* first = bits + 16 - (left >= 16 ? 16 : left <= 0 ? 0 : left);
    return {_mm256_loadu_si256((const __m256i*)first),
            _mm256_loadu_si256((const __m256i*)(first + 8))};
}

inline Vector fill(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vector load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
inline void store(float* x, Vector v) {
    _mm256_storeu_ps(x, v.low), _mm256_storeu_ps(x + 8, v.high);
}
inline Vector load(const float* x, int64_t left) {
    if (left >= 16) return load(x);
    const Ints m = lanes(left);
    return {_mm256_maskload_ps(x, m.low), _mm256_maskload_ps(x + 8, m.high)};
}
inline void store(float* x, int64_t left, Vector v) {
    if (left >= 16) return store(x, v);
    const Ints m = lanes(left);
    _mm256_maskstore_ps(x, m.low, v.low), _mm256_maskstore_ps(x + 8, m.high, v.high);
}

inline Vector add(Vector a, Vector b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Vector sub(Vector a, Vector b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Vector mul(Vector a, Vector b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Vector div(Vector a, Vector b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Vector min(Vector a, Vector b) {  // as max
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline Vector max(Vector a, Vector b) {  // b where one is a NaN
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vector multiply_sub(Vector a, Vector b, Vector c) {
    return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
}
inline Vector minus_product(Vector c, Vector a, Vector b) {
    return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
inline Vector round(Vector x) {  // halves to the even number
    constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, NEAREST), _mm256_round_ps(x.high, NEAREST)};
}

// ``a`` in the lanes that are not among the first ``left``.
inline Vector choose_first(int64_t left, Vector b, Vector a) {
    if (left >= 16) return b;
    const Ints m = lanes(left);
    return {_mm256_blendv_ps(a.low, b.low, _mm256_castsi256_ps(m.low)),
            _mm256_blendv_ps(a.high, b.high, _mm256_castsi256_ps(m.high))};
}
inline Vector add_first(Vector a, int64_t left, Vector b) {
    return choose_first(left, add(a, b), a);
}
inline Vector max_first(Vector a, int64_t left, Vector b) {
    return choose_first(left, max(a, b), a);
}

// Halves meet halves, as in _mm512_reduce_add_ps.
template <class Combine>
float reduce(Vector x, Combine combine) {
    const __m256 eight = combine(x.high, x.low);
    const __m256 four = combine(_mm256_permute2f128_ps(eight, eight, 1), eight);
    const __m256 two = combine(four, _mm256_permute_ps(four, 0b01'00'11'10));
    return _mm256_cvtss_f32(combine(two, _mm256_permute_ps(two, 0b10'11'00'01)));
}
inline float sum(Vector x) {
    return reduce(x, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); });
}
inline float least(Vector x) {
    return reduce(x, [](__m256 a, __m256 b) { return _mm256_min_ps(a, b); });
}
inline float greatest(Vector x) {
    return reduce(x, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); });
}

// Whole numbers.

inline Ints fill(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Ints load(const int32_t* x) {
    return {_mm256_loadu_si256((const __m256i*)x), _mm256_loadu_si256((const __m256i*)(x + 8))};
}
inline Ints add(Ints a, Ints b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline Ints sub(Ints a, Ints b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline Ints mul(Ints a, Ints b) {
    return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
inline Ints exclusive_or(Ints a, Ints b) {
    return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
inline Ints shift_left(Ints x, int bits) {
    return {_mm256_slli_epi32(x.low, bits), _mm256_slli_epi32(x.high, bits)};
}
inline Ints shift_right(Ints x, int bits) {  // zeros come in
    return {_mm256_srli_epi32(x.low, bits), _mm256_srli_epi32(x.high, bits)};
}
// v in the lanes whose number is ``least`` or more, else 0.
inline Vector where_least(Ints numbers, int32_t least, Vector v) {
    const __m256i below = _mm256_set1_epi32(least);
    const auto some = [&](__m256i x, __m256 y) {
        return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(below, x)), y);
    };
    return {some(numbers.low, v.low), some(numbers.high, v.high)};
}
inline Ints to_ints(Vector x) {  // halves to the even number
    return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)};
}
inline Vector to_floats(Ints x) {
    return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}

// x 2^n for whole n of -126 and more.
inline Vector times_power_of_2(Vector x, Vector n) {
    const Ints exponents = add(to_ints(n), fill(127));
    return mul(x, {_mm256_castsi256_ps(_mm256_slli_epi32(exponents.low, 23)),
                   _mm256_castsi256_ps(_mm256_slli_epi32(exponents.high, 23))});
}

// The lower 16 bits of each number, of which the upper 16 bits are 0.
inline __m256i halves(Ints x) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(x.low, x.high), 0b11'01'10'00);
}

inline Vector load(const BFloat16* x, int64_t left) {
    BFloat16 some[16] = {};
    if (left < 16) x = (const BFloat16*)std::memcpy(some, x, left * sizeof *x);
    const auto eight = [](const BFloat16* first) {
        const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)first));
        return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    };
    return {eight(x), eight(x + 8)};
}

// Rounds to the nearest, ties to even, as PyTorch does. NaN stays NaN.
inline void store(BFloat16* x, int64_t left, Vector v) {
    const auto upper = [](__m256 numbers) {
        const __m256i bits = _mm256_castps_si256(numbers);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        const __m256 is_nan = _mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q);
        up = _mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc00000), _mm256_castps_si256(is_nan));
        return _mm256_srli_epi32(up, 16);
    };
    const __m256i bits = halves({upper(v.low), upper(v.high)});
    if (left >= 16) return _mm256_storeu_si256((__m256i*)x, bits);
    std::memcpy(x, &bits, left * sizeof *x);
}

// Products in 8 bits: of four neighbours among a row's inputs, in all lanes, with the four weights
// that each of 16 outputs has for them. AVX2 cuts sums of two products of 8 bits at 16 bits, so
// numbers of 16 bits are multiplied. Those at even and at odd places stand in registers of their own.

using Byte = uint16_t;  // of four inputs the first, the third, the second, the fourth
struct FourInputs {
    __m256i even, odd;
};
struct FourWeights {
    Ints even, odd;
};

// 16 numbers, limited to 0 .. 255. There is room for 16, and all are written.
inline void store_bytes(Byte* to, int64_t, Ints x) {
    const auto order = [](__m256i numbers) {
        numbers = _mm256_min_epi32(numbers, _mm256_set1_epi32(255));
        numbers = _mm256_max_epi32(numbers, _mm256_setzero_si256());
        return _mm256_shuffle_epi32(numbers, 0b11'01'10'00);
    };
    _mm256_storeu_si256((__m256i*)to, halves({order(x.low), order(x.high)}));
}

inline FourInputs load_inputs(const Byte* x) {
    int32_t even, odd;
    std::memcpy(&even, x, 4), std::memcpy(&odd, x + 2, 4);
    return {_mm256_set1_epi32(even), _mm256_set1_epi32(odd)};
}

inline FourWeights load_weights(const int8_t* W) {
    const Ints w = load((const int32_t*)W);
    const auto first = [](__m256i x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); };
    return {{first(w.low), first(w.high)},
            {_mm256_srai_epi16(w.low, 8), _mm256_srai_epi16(w.high, 8)}};
}

// GCC 12 reorders these additions, runs out of registers and keeps sums in memory.
inline void add_product(__m256i& sum, __m256i x, __m256i w) {
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(_mm256_madd_epi16(x, w)));
}

inline void add_products(Ints& sum, FourInputs x, const FourWeights& w) {
    add_product(sum.low, x.even, w.even.low), add_product(sum.high, x.even, w.even.high);
    add_product(sum.low, x.odd, w.odd.low), add_product(sum.high, x.odd, w.odd.high);
}

// Rows at a time in a matrix product, and vectors of 16 outputs with that many rows, as measured: the
// sums, a vector of weights and an input fill 16 registers.
constexpr int INT8_ROWS = 4, FLOAT_ROWS = 6;
constexpr int int8_vectors(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
constexpr int float_vectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
// Multiplications that are worth a second thread, as measured.
constexpr int64_t INT8_ENOUGH = 1 << 18, FLOAT_ENOUGH = 1 << 17;
