// Dropout (5.4) with the residual's addition, in one pass and without a mask.
//
// Which elements are kept depends on a seed and the element's place alone, so that the gradient finds
// the same ones again.
#include "vectors.h"

namespace {

constexpr int64_t BLOCK = 32;  // elements whose numbers of 16 bits are made together

// An integer hash of 32 bits by C. Wellons ("lowbias32"): each bit of x changes about half of all.
Ints mix(Ints x) {
    x = mul(exclusive_or(x, shift_right(x, 16)), fill(int32_t(0x7feb352d)));
    x = mul(exclusive_or(x, shift_right(x, 15)), fill(int32_t(0x846ca68b)));
    return exclusive_or(x, shift_right(x, 16));
}

// Lane i has the numbers of elements i and 16 + i of the block: its lower and its upper 16 bits.
Ints random_bits(int64_t seed, int64_t block) {
    static const int32_t places[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Ints place = add(load(places), fill(int32_t(16 * block)));
    return mix(exclusive_or(mix(add(place, fill(int32_t(seed)))), fill(int32_t(seed >> 32))));
}

inline Vector load_some(const float* x, int64_t left) { return load(x, left); }
inline Vector load_some(const BFloat16* x, int64_t left) {
    return left > 0 ? load(x, left) : fill(0.f);
}
inline void store_some(float* x, int64_t left, Vector v) { store(x, left, v); }
inline void store_some(BFloat16* x, int64_t left, Vector v) {
    if (left > 0) store(x, left, v);
}

template <typename From, typename To>
void drop(const From* x, const To* residual, To* out, int64_t n, int64_t seed, int32_t threshold,
          float scale, int64_t threads) {
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; ++block) {
        const Ints bits = random_bits(seed, block);
        for (int half = 0; half < 2; ++half) {
            const int64_t i = block * BLOCK + 16 * half, left = n - i;
            const Ints number = shift_right(half ? bits : shift_left(bits, 16), 16);
            const Vector kept = where_least(number, threshold, fill(scale));
            Vector y = mul(load_some(x + i, left), kept);
            if (residual) y = add(load_some(residual + i, left), y);
            store_some(out + i, left, y);
        }
    }
}

}  // namespace

// out = x where a number of 16 bits drawn for the element is ``threshold`` or more, times ``scale``,
// else 0, plus the residual where there is one. The flags say whether x, and whether residual and
// out, are BFloat16; else they are float.
extern "C" void mt_dropout(const void* x, int64_t x_bfloat16, const void* residual, void* out,
                           int64_t out_bfloat16, int64_t n, int64_t seed, int64_t threshold,
                           float scale, int64_t threads) {
    const auto run = [&](auto* from, auto* to) {
        drop(from, (decltype(to))residual, to, n, seed, int32_t(threshold), scale, threads);
    };
    if (x_bfloat16 && out_bfloat16)
        run((const BFloat16*)x, (BFloat16*)out);
    else if (x_bfloat16)
        run((const BFloat16*)x, (float*)out);
    else if (out_bfloat16)
        run((const float*)x, (BFloat16*)out);
    else
        run((const float*)x, (float*)out);
}
