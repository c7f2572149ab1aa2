// The Transformer that mt.inference.incremental has: the encoder and a decoder's step, each in one
// call. No row sees another one but by attention, and attention sees neither padding nor
// other sentences: results do not depend on the batch, to the last bit.
//
// Shapes: as in products.h; B sentences, w hypotheses of each, S source length, T tokens of a
// hypothesis, N layers, hw = h * width.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "products.h"

struct Norm {
    const float *weight, *bias;  // [d_model]; null: no norm
    float eps;
};
struct SelfAttention {
    Linear W_QKV, W_O;
    Norm norm;
};
struct CrossAttention {
    Linear W_Q, W_KV, W_O;
    Norm norm;
};
struct FeedForward {
    Linear W_1, W_2;
    Norm norm;
};
struct EncoderLayer {
    SelfAttention self_attention;
    FeedForward feed_forward;
};
struct DecoderLayer {
    SelfAttention self_attention;
    CrossAttention cross_attention;
    FeedForward feed_forward;
};
struct Model {
    const EncoderLayer* encoder;
    const DecoderLayer* decoder;
    int64_t encoder_layers, decoder_layers;
    const float *embedding, *target_embedding;  // [V, d_model]
    Linear vocabulary;
    Norm encoder_norm, decoder_norm;  // after the last layer, of pre-LN
    int64_t d_model, h, width, is_pre, activation;
    float scale, embedding_scale;
};

// Keys and values [N, B, slots, 2h, width]; there may be room for more sentences and slots.
struct Cache {
    float* start;
    int64_t layer, sentence;  // strides
};
struct Sources {
    int64_t B, S;
    const int64_t *ids, *lengths;  // [B, S], [B]
    const float* positions;        // [>= S, d_model]
    Cache cross;                   // written
    int64_t threads;
};
struct Step {
    int64_t B, w;
    const int64_t* tokens;          // [B, w]
    const int64_t* parents;         // [B, w]; null: hypothesis i continues hypothesis i
    const int64_t* source_lengths;  // [B]
    const int64_t* ages;            // [B]: tokens of each hypothesis before this one
    const float* positions;         // [> all ages, d_model]
    Cache own, cross;
    int64_t slots;                  // of own
    // The slots of each hypothesis's tokens, first token first.
    const int32_t* past;            // [B, past_w, past_T]
    int64_t past_w, past_T;
    int32_t* paths;                 // [B, w, T], written
    int64_t T;
    int64_t used;                   // slots up to the last one in use; grows
    float* logits;                  // [B, w, V], written
    int64_t threads;
};

namespace {

// ``n`` slots of a cache: keys of all heads, then values, stand in each slot.
struct Seen {
    const float* keys;
    int64_t stride;
    const int32_t* slots;  // null: the first ones
    int64_t n;

    const float* operator[](int64_t i) const { return keys + (slots ? slots[i] : i) * stride; }
};

// weights [h, row]: Q K^T / sqrt(d_k), a row of 16s for each head.
void score(const Model& M, const float* q, const Seen& seen, float* weights, int64_t row) {
    for (int64_t i = 0; i < seen.n; ++i) {
        const float* k = seen[i];
        for (int64_t j = 0; j < M.h; ++j) {
            Vector s = fill(0.f);
            for (int64_t d = j * M.width; d < (j + 1) * M.width; d += 16)
                s = multiply_add(load(q + d), load(k + d), s);
            weights[j * row + i] = sum(s) * M.scale;
        }
    }
}

void softmax(float* x, int64_t n) {
    const Vector most = fill(greatest(x, n));
    Vector total = fill(0.f);
    for (int64_t i = 0; i < n; i += 16) {
        const Vector e = exp_negative(sub(load(x + i, n - i), most));
        store(x + i, n - i, e);
        total = add_first(total, n - i, e);
    }
    const Vector rate = fill(1.f / sum(total));
    for (int64_t i = 0; i < n; i += 16) store(x + i, n - i, mul(load(x + i, n - i), rate));
}

// out[first .. first + 16 C]: the weighted sum of those columns of the values.
template <int C>
void mix(const float* weights, const Seen& seen, int64_t values, int64_t first, float* out) {
    Vector sums[C];
    for (int c = 0; c < C; ++c) sums[c] = fill(0.f);
    for (int64_t i = 0; i < seen.n; ++i) {
        const float* v = seen[i] + values + first;
        const Vector weight = fill(weights[i]);
        for (int c = 0; c < C; ++c) sums[c] = multiply_add(weight, load(v + 16 * c), sums[c]);
    }
    for (int c = 0; c < C; ++c) store(out + first + 16 * c, sums[c]);
}

// Equation 1 for one query of all heads: q [hw] -> out [hw].
void attend(const Model& M, const float* q, const Seen& seen, float* out) {
    const int64_t hw = M.h * M.width, row = (seen.n + 15) / 16 * 16;
    thread_local Floats weights;
    weights.resize(M.h * row);
    score(M, q, seen, weights.data(), row);
    for (int64_t j = 0; j < M.h; ++j) {
        float* own = &weights[j * row];
        softmax(own, seen.n);
        int64_t first = j * M.width, end = first + M.width;
        for (; first + 64 <= end; first += 64) mix<4>(own, seen, hw, first, out);
        for (; first < end; first += 16) mix<1>(own, seen, hw, first, out);
    }
}

void normalise_row(const Norm& norm, const float* x, int64_t d, float* y) {
    Vector total = fill(0.f), squares = total;
    for (int64_t i = 0; i < d; i += 16) total = add(total, load(x + i));
    const Vector mean = fill(sum(total) / d);
    for (int64_t i = 0; i < d; i += 16) {
        const Vector centred = sub(load(x + i), mean);
        squares = multiply_add(centred, centred, squares);
    }
    const Vector rate = fill(1.f / std::sqrt(sum(squares) / d + norm.eps));
    for (int64_t i = 0; i < d; i += 16) {
        const Vector v = mul(sub(load(x + i), mean), rate);
        store(y + i, multiply_add(v, load(norm.weight + i), load(norm.bias + i)));
    }
}

// Activations. The order is that of NAMES in step.py.

enum Activation { IS_RELU, IS_SILU, IS_GELU, IS_GELU_TANH };

// 1 / (1 + e^-x)
Vector sigmoid(Vector x) {
    const Vector minus_size = min(x, sub(fill(0.f), x));
    return div(exp_negative(min(x, fill(0.f))), add(fill(1.f), exp_negative(minus_size)));
}

Vector silu(Vector x) { return mul(x, sigmoid(x)); }

Vector gelu_tanh(Vector x) {  // (1 + tanh(y)) / 2 is sigmoid(2 y)
    const Vector cube = mul(mul(x, x), x);
    return mul(x, sigmoid(mul(fill(1.59576912f), multiply_add(fill(0.044715f), cube, x))));
}

// max(0, x) - |x| P(X > |x|) of a normal X, by formula 7.1.26 of Abramowitz and Stegun, whose error
// is below 1e-7.
Vector gelu(Vector x) {
    const Vector size = max(x, sub(fill(0.f), x));
    const Vector t = div(fill(1.f), multiply_add(fill(0.3275911f * 0.70710678f), size, fill(1.f)));
    Vector p = fill(1.061405429f);
    for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
        p = multiply_add(p, t, fill(c));
    const Vector e = exp_negative(mul(fill(-0.5f), mul(x, x)));
    const Vector beyond = mul(mul(p, t), mul(fill(0.5f), e));
    return minus_product(max(fill(0.f), x), size, beyond);
}

// x [R, d_model] on its way through the layers.
class Rows {
   public:
    Floats x;

    void begin(const Model& model, int64_t rows, int64_t most_threads) {
        M = &model, R = rows, threads = most_threads;
        x.resize(R * M->d_model), y.resize(R * M->d_model), heads.resize(R * M->h * M->width);
    }

    void embed(int64_t r, const float* table, int64_t id, const float* position) {
        const float* from = table + id * M->d_model;
        float* to = &x[r * M->d_model];
        for (int64_t i = 0; i < M->d_model; ++i) to[i] = position[i] + M->embedding_scale * from[i];
    }

    // What a sublayer makes of x first, which pre-LN normalises: [R, out].
    const float* project(const Linear& W, const Norm& norm, Mode mode = PLAIN) {
        projected.resize(R * W.out);
        if (M->is_pre) normalise(norm, y);
        multiply(W, M->is_pre ? y.data() : x.data(), R, mode, projected.data(), threads);
        return projected.data();
    }

    // Attention of q, the first hw numbers of each projected row, to what ``seen(r)`` gives.
    template <class See>
    void attend_all(int64_t q_stride, const See& seen) {
        const int64_t hw = M->h * M->width;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && R >= 16)
        for (int64_t r = 0; r < R; ++r)
            attend(*M, &projected[r * q_stride], seen(r), &heads[r * hw]);
    }

    void add_heads(const Linear& W_O, const Norm& norm) { add(W_O, heads.data(), norm); }

    void feed_forward(const FeedForward& F) {
        project(F.W_1, F.norm, M->activation == IS_RELU ? RELU : PLAIN);
        if (M->activation == IS_SILU) activate(F.W_1.out, silu);
        if (M->activation == IS_GELU) activate(F.W_1.out, gelu);
        if (M->activation == IS_GELU_TANH) activate(F.W_1.out, gelu_tanh);
        add(F.W_2, projected.data(), F.norm);
    }

    // The last layer's output -> x W^T + b [R, out].
    void finish(const Norm& norm, const Linear& W, float* to) {
        normalise_last(norm);
        multiply(W, x.data(), R, PLAIN, to, threads);
    }

    void normalise_last(const Norm& norm) {
        if (norm.weight) normalise(norm, x);
    }

   private:
    const Model* M;
    int64_t R, threads;
    Floats y, heads, projected;

    template <class F>
    void activate(int64_t d_ff, const F& f) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && R >= 16)
        for (int64_t r = 0; r < R; ++r) {
            float* row = &projected[r * d_ff];
            for (int64_t i = 0; i < d_ff; i += 16)
                store(row + i, d_ff - i, f(load(row + i, d_ff - i)));
        }
    }

    // Add & Norm.
    void add(const Linear& W, const float* from, const Norm& norm) {
        multiply(W, from, R, ADD, x.data(), threads);
        if (!M->is_pre) normalise(norm, x);
    }

    void normalise(const Norm& norm, Floats& to) {
        const int64_t d = M->d_model;
        for (int64_t r = 0; r < R; ++r) normalise_row(norm, &x[r * d], d, &to[r * d]);
    }
};

// Each hypothesis gets its parent's path and a slot that none of its sentence sees any more.
void extend_paths(Step& S) {
    thread_local std::vector<char> taken;
    for (int64_t b = 0; b < S.B; ++b) {
        const int64_t age = S.ages[b];
        taken.assign(S.slots, 0);
        for (int64_t i = 0; i < S.w; ++i) {
            const int64_t parent = S.parents ? S.parents[b * S.w + i] : i;
            const int32_t* from = S.past + (b * S.past_w + parent) * S.past_T;
            int32_t* path = S.paths + (b * S.w + i) * S.T;
            for (int64_t t = 0; t < age; ++t) taken[path[t] = from[t]] = 1;
        }
        int32_t slot = 0;
        for (int64_t i = 0; i < S.w; ++i, ++slot) {
            while (taken[slot]) ++slot;
            S.paths[(b * S.w + i) * S.T + age] = slot;
        }
        S.used = std::max<int64_t>(S.used, slot);
    }
}

bool in_vocabulary(const Model& M, const int64_t* ids, int64_t n) {
    return std::all_of(ids, ids + n, [&](int64_t id) { return 0 <= id && id < M.vocabulary.out; });
}

}  // namespace

extern "C" {

void mt_multiply(const Linear* linear, const float* x, int64_t R, int64_t mode, float* y,
                 int64_t threads) {
    multiply(*linear, x, R, (Mode)mode, y, threads);
}

// Source ids -> the keys and values that the decoder's layers make of the encoder's output.
// Returns 0, and does nothing, if an id is not in the vocabulary.
int mt_encode(const Model* model, const Sources* sources) {
    const Model& M = *model;
    const Sources& S = *sources;
    if (!in_vocabulary(M, S.ids, S.B * S.S)) return 0;
    const int64_t hw = M.h * M.width;
    // The sentences stand one after the other, without padding.
    std::vector<int64_t> starts(S.B + 1, 0), sentence;
    for (int64_t b = 0; b < S.B; ++b) {
        starts[b + 1] = starts[b] + S.lengths[b];
        sentence.insert(sentence.end(), S.lengths[b], b);
    }
    const int64_t R = starts[S.B];
    Rows rows;  // large with many sentences, so they are not kept
    rows.begin(M, R, S.threads);
    for (int64_t r = 0; r < R; ++r) {
        const int64_t b = sentence[r], t = r - starts[b];
        rows.embed(r, M.embedding, S.ids[b * S.S + t], S.positions + t * M.d_model);
    }
    for (int64_t n = 0; n < M.encoder_layers; ++n) {
        const SelfAttention& own = M.encoder[n].self_attention;
        const float* keys = rows.project(own.W_QKV, own.norm) + hw;
        rows.attend_all(3 * hw, [&](int64_t r) -> Seen {
            const int64_t b = sentence[r];
            return {keys + starts[b] * 3 * hw, 3 * hw, nullptr, S.lengths[b]};
        });
        rows.add_heads(own.W_O, own.norm);
        rows.feed_forward(M.encoder[n].feed_forward);
    }
    rows.normalise_last(M.encoder_norm);
    Floats keys_values(R * 2 * hw);
    for (int64_t n = 0; n < M.decoder_layers; ++n) {
        const Linear& W_KV = M.decoder[n].cross_attention.W_KV;
        multiply(W_KV, rows.x.data(), R, PLAIN, keys_values.data(), S.threads);
        for (int64_t b = 0; b < S.B; ++b)
            std::memcpy(S.cross.start + n * S.cross.layer + b * S.cross.sentence,
                        &keys_values[starts[b] * 2 * hw],
                        S.lengths[b] * 2 * hw * sizeof(float));
    }
    return 1;
}

// The last tokens of all hypotheses -> the logits of their next ones. Returns as mt_encode.
int mt_step(const Model* model, Step* step) {
    const Model& M = *model;
    Step& S = *step;
    const int64_t hw = M.h * M.width, R = S.B * S.w;
    if (!in_vocabulary(M, S.tokens, R)) return 0;
    extend_paths(S);
    thread_local Rows rows;
    rows.begin(M, R, S.threads);
    for (int64_t r = 0; r < R; ++r)
        rows.embed(r, M.target_embedding, S.tokens[r], S.positions + S.ages[r / S.w] * M.d_model);
    for (int64_t n = 0; n < M.decoder_layers; ++n) {
        const DecoderLayer& layer = M.decoder[n];
        const auto of_sentence = [&](const Cache& cache, int64_t r) {
            return cache.start + n * cache.layer + r / S.w * cache.sentence;
        };
        const SelfAttention& own = layer.self_attention;
        const float* projected = rows.project(own.W_QKV, own.norm);
        for (int64_t r = 0; r < R; ++r)
            std::memcpy(of_sentence(S.own, r) + S.paths[r * S.T + S.ages[r / S.w]] * 2 * hw,
                        projected + r * 3 * hw + hw, 2 * hw * sizeof(float));
        rows.attend_all(3 * hw, [&](int64_t r) -> Seen {
            return {of_sentence(S.own, r), 2 * hw, S.paths + r * S.T, S.ages[r / S.w] + 1};
        });
        rows.add_heads(own.W_O, own.norm);
        const CrossAttention& cross = layer.cross_attention;
        rows.project(cross.W_Q, cross.norm);
        rows.attend_all(hw, [&](int64_t r) -> Seen {
            return {of_sentence(S.cross, r), 2 * hw, nullptr, S.source_lengths[r / S.w]};
        });
        rows.add_heads(cross.W_O, cross.norm);
        rows.feed_forward(layer.feed_forward);
    }
    rows.finish(M.decoder_norm, M.vocabulary, S.logits);
    return 1;
}
}
