// Label-smoothed cross-entropy of rows of logits, and its gradient in their place.
//
// Shapes: R rows, of which the first n have a target; V vocabulary.
#include <cmath>
#include <cstring>

#include "vectors.h"

namespace {

// Numbers of 16 bits are bfloat16: the upper half of a float.
struct BFloat16 {
    uint16_t bits;
};

__m512 load(const float* x, __mmask16 m) { return _mm512_maskz_loadu_ps(m, x); }

__m512 load(const BFloat16* x, __mmask16 m) {
    const __m256i halves = _mm256_maskz_loadu_epi16(m, x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

void store(float* x, __mmask16 m, __m512 numbers) { _mm512_mask_storeu_ps(x, m, numbers); }

// Rounds to the nearest, ties to even, as PyTorch does. NaN stays NaN.
void store(BFloat16* x, __mmask16 m, __m512 numbers) {
    const __m512i bits = _mm512_castps_si512(numbers);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    up = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(numbers, numbers, _CMP_UNORD_Q),
                               _mm512_set1_epi32(0x7fc00000));
    _mm256_mask_storeu_epi16(x, m, _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

template <typename Number>
void store_one(Number* x, float number) {
    store(x, 1, _mm512_set1_ps(number));
}

// The sums are of the numbers in their order, 16 at a time, so that threads change nothing.
template <typename Number>
void row_loss(Number* logits, int64_t V, int64_t target, float eps, bool with_grad, float* x,
              float* loss, float* nll) {
    __m512 top = _mm512_set1_ps(-INFINITY), all = _mm512_setzero_ps();
    for (int64_t i = 0; i < V; i += 16) {
        const __mmask16 m = lanes(V - i);
        const __m512 numbers = load(logits + i, m);
        _mm512_storeu_ps(x + i, numbers);
        top = _mm512_mask_max_ps(top, m, top, numbers);
        all = _mm512_add_ps(all, numbers);
    }
    const float max = _mm512_reduce_max_ps(top), gold = x[target] - max;
    __m512 total = _mm512_setzero_ps();
    for (int64_t i = 0; i < V; i += 16) {
        const __mmask16 m = lanes(V - i);
        const __m512 e =
            exp_negative(_mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(max)));
        _mm512_storeu_ps(x + i, e);
        total = _mm512_mask_add_ps(total, m, total, e);
    }
    const float Z = sum(total), log_Z = std::log(Z);
    const float mean = sum(all) / V - max;  // of the logits, above which stands the greatest
    *nll = log_Z - gold;
    *loss = (1 - eps) * *nll + eps * (log_Z - mean);
    if (!with_grad) return;
    // d loss / d logits = softmax - smoothed target distribution
    const __m512 share = _mm512_set1_ps(1 / Z), spread = _mm512_set1_ps(eps / V);
    for (int64_t i = 0; i < V; i += 16)
        store(logits + i, lanes(V - i), _mm512_fmsub_ps(_mm512_loadu_ps(x + i), share, spread));
    store_one(logits + target, x[target] / Z - eps / V - (1 - eps));
}

template <typename Number>
void loss_of_rows(Number* logits, int64_t R, int64_t n, int64_t V, const int64_t* targets,
                  float eps, bool with_grad, float* losses, float* nlls, int64_t threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Floats numbers(V + 16);  // of one row
#pragma omp for schedule(static)
        for (int64_t r = 0; r < R; ++r) {
            if (r < n)
                row_loss(logits + r * V, V, targets[r], eps, with_grad, numbers.data(),
                         losses + r, nlls + r);
            else
                std::memset(logits + r * V, 0, V * sizeof(Number));
        }
    }
}

}  // namespace

// logits [R, V] -> losses [n] and nlls [n], in nats; with_grad, the logits become the gradient of
// the losses' sum. ``bfloat16`` is the logits' type, else it is float. Returns 1 if a target is none.
extern "C" int mt_loss(void* logits, int64_t bfloat16, int64_t R, int64_t n, int64_t V,
                       const int64_t* targets, float eps, int64_t with_grad, float* losses,
                       float* nlls, int64_t threads) {
    for (int64_t r = 0; r < n; ++r)
        if (targets[r] < 0 || targets[r] >= V) return 1;
    if (bfloat16)
        loss_of_rows(static_cast<BFloat16*>(logits), R, n, V, targets, eps, with_grad, losses,
                     nlls, threads);
    else
        loss_of_rows(static_cast<float*>(logits), R, n, V, targets, eps, with_grad, losses, nlls,
                     threads);
    return 0;
}
