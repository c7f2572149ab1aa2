// The likeliest tokens of each row of logits, without log P of all the others.
#include <algorithm>
#include <cmath>

#include "products.h"

namespace {

constexpr int64_t SEGMENT = 64;  // numbers; the greatest of each segment is kept

// log(sum(e^(x - max)))
float log_sum(const float* x, int64_t n, float max) {
    Vector total = fill(0.f);
    for (int64_t i = 0; i < n; i += 16) {
        const Vector shifted = sub(load(x + i, n - i), fill(max));
        total = add_first(total, n - i, exp_negative(shifted));
    }
    return std::log(sum(total));
}

class Row {
   public:
    Row(float* all_logits, int64_t n) : logits(all_logits), V(n), tops(tops_of_thread) {
        tops.resize((V + SEGMENT - 1) / SEGMENT);
        for (size_t s = 0; s < tops.size(); ++s) look_at(s);
        max = *std::max_element(tops.begin(), tops.end());
        log_total = log_sum(logits, V, max);
    }

    void forbid(int64_t id) {
        logits[id] = -INFINITY;
        look_at(id / SEGMENT);
    }

    // Of equal ones the smaller id comes first.
    int64_t best() const {
        const int64_t s = std::max_element(tops.begin(), tops.end()) - tops.begin();
        const float* start = logits + s * SEGMENT;
        return std::max_element(start, start + length(s)) - logits;
    }

    float log_p(int64_t id) const { return logits[id] - max - log_total; }

   private:
    static thread_local Floats tops_of_thread;
    float* logits;
    int64_t V;
    Floats& tops;
    float max, log_total;

    int64_t length(int64_t s) const { return std::min(SEGMENT, V - s * SEGMENT); }
    void look_at(int64_t s) { tops[s] = greatest(logits + s * SEGMENT, length(s)); }
};

thread_local Floats Row::tops_of_thread;

}  // namespace

// logits [R, V], which it destroys -> log P and ids [R, k], best first, of ids >= first. No ``eos``
// for rows where ``unfinished`` [R] is 1.
extern "C" void mt_best(float* logits, int64_t R, int64_t V, int64_t k, int64_t first, int64_t eos,
                        const uint8_t* unfinished, float* log_probs, int64_t* ids,
                        int64_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && R >= 16)
    for (int64_t r = 0; r < R; ++r) {
        Row row(logits + r * V, V);
        for (int64_t id = 0; id < first; ++id) row.forbid(id);
        if (unfinished[r]) row.forbid(eos);
        for (int64_t i = 0; i < k; ++i) {
            const int64_t id = ids[r * k + i] = row.best();
            log_probs[r * k + i] = row.log_p(id);
            row.forbid(id);
        }
    }
}
