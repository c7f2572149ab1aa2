// Label-smoothed cross-entropy of rows of logits, and its gradient in their place.
//
// Shapes: R rows, of which the first n have a target; V vocabulary.
#include <cmath>
#include <cstring>

#include "vectors.h"

namespace {

template <typename Number>
void store_one(Number* x, float number) {
    store(x, 1, fill(number));
}

// The sums are of the numbers in their order, 16 at a time, so that threads change nothing.
template <typename Number>
void row_loss(Number* logits, int64_t V, int64_t target, float eps, bool with_grad, float* x,
              float* loss, float* nll) {
    Vector top = fill(-INFINITY), all = fill(0.f);
    for (int64_t i = 0; i < V; i += 16) {
        const Vector numbers = load(logits + i, V - i);
        store(x + i, numbers);
        top = max_first(top, V - i, numbers);
        all = add(all, numbers);
    }
    const float most = greatest(top), gold = x[target] - most;
    Vector total = fill(0.f);
    for (int64_t i = 0; i < V; i += 16) {
        const Vector e = exp_negative(sub(load(x + i), fill(most)));
        store(x + i, e);
        total = add_first(total, V - i, e);
    }
    const float Z = sum(total), log_Z = std::log(Z);
    const float mean = sum(all) / V - most;  // of the logits, above which stands the greatest
    *nll = log_Z - gold;
    *loss = (1 - eps) * *nll + eps * (log_Z - mean);
    if (!with_grad) return;
    // d loss / d logits = softmax - smoothed target distribution
    const Vector share = fill(1 / Z), spread = fill(eps / V);
    for (int64_t i = 0; i < V; i += 16)
        store(logits + i, V - i, multiply_sub(load(x + i), share, spread));
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
