// Scaled dot-product attention (3.2.1, equation 1) over packed sentences, and its gradient.
//
// Shapes: B sentences of T queries and S keys, h heads of d numbers, a multiple of 16. The rows of a
// sentence are neighbours, and so are the numbers of a head.
#include <algorithm>

#include "vectors.h"

namespace {

constexpr int64_t QUERIES = 64;  // at a time, so that their weights stay in the cache

int64_t whole(int64_t n) { return (n + 15) / 16 * 16; }

// A matrix whose number (i, j) stands at numbers[i * row + j * column].
struct Left {
    const float* numbers;
    int64_t row, column;
};

// out [R, 16 C] = A [R, k] B [k, 16 C], or added to what is there. Each sum is in the order of k.
template <int R, int C>
void multiply_block(int64_t k, Left A, const float* B, int64_t width, float* out, int64_t out_width,
                    bool added) {
    Vector sums[R][C];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
            sums[r][c] = added ? load(out + r * out_width + 16 * c) : fill(0.f);
    for (int64_t j = 0; j < k; ++j) {
        Vector b[C];
        for (int c = 0; c < C; ++c) b[c] = load(B + j * width + 16 * c);
        for (int r = 0; r < R; ++r) {
            const Vector a = fill(A.numbers[r * A.row + j * A.column]);
            for (int c = 0; c < C; ++c) sums[r][c] = multiply_add(a, b[c], sums[r][c]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) store(out + r * out_width + 16 * c, sums[r][c]);
}

template <int R>
void multiply_rows(int64_t n, int64_t k, Left A, const float* B, int64_t width, float* out,
                   int64_t out_width, bool added) {
    constexpr int C = float_vectors(R);
    int64_t i = 0;
    for (; i + 16 * C <= n; i += 16 * C)
        multiply_block<R, C>(k, A, B + i, width, out + i, out_width, added);
    if constexpr (C > 2)
        for (; i + 32 <= n; i += 32)
            multiply_block<R, 2>(k, A, B + i, width, out + i, out_width, added);
    for (; i < n; i += 16)
        multiply_block<R, 1>(k, A, B + i, width, out + i, out_width, added);
}

// out [m, n] = A [m, k] B [k, n], or added to what is there; n is a multiple of 16.
void multiply(int64_t m, int64_t n, int64_t k, Left A, const float* B, int64_t width, float* out,
              int64_t out_width, bool added = false) {
    while (m > 0) {
        const int64_t rows = std::min<int64_t>(m, FLOAT_ROWS);
        with_constant<FLOAT_ROWS>(rows, [&](auto R) {
            multiply_rows<R>(n, k, A, B, width, out, out_width, added);
        });
        A.numbers += rows * A.row, out += rows * out_width, m -= rows;
    }
}

// Both copy the columns of one head, from a packed matrix to floats and back.
template <typename Number>
void read_head(const Number* from, int64_t width, int64_t rows, int64_t d, float* to) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < d; i += 16) store(to + r * d + i, load(from + r * width + i, 16));
}
template <typename Number>
void write_head(const float* from, int64_t rows, int64_t d, Number* to, int64_t width) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < d; i += 16) store(to + r * width + i, 16, load(from + r * d + i));
}

// Eight rows and eight columns of ``from`` become columns and rows.
void transpose_8(const float* from, int64_t width, float* to, int64_t to_width) {
    __m256 x[8], y[8];
    for (int i = 0; i < 8; ++i) x[i] = _mm256_loadu_ps(from + i * width);
    for (int i = 0; i < 8; i += 2) {
        y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            x[i + 2 * j] = _mm256_shuffle_ps(y[i + j], y[i + j + 2], 0b01'00'01'00);
            x[i + 2 * j + 1] = _mm256_shuffle_ps(y[i + j], y[i + j + 2], 0b11'10'11'10);
        }
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(to + i * to_width, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * to_width, _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
    }
}

// x [width, d] becomes [d, width]; width is a multiple of 16.
void transpose(const float* x, int64_t d, int64_t width, float* to) {
    for (int64_t r = 0; r < width; r += 8)
        for (int64_t i = 0; i < d; i += 8) transpose_8(x + r * d + i, d, to + i * width + r, width);
}

// The numbers of one head of a sentence. Rows of keys and values after the S-th are zeros.
struct Head {
    int64_t T, S, d, width;
    Floats q, k, v, turned, weights, totals;

    Head(int64_t T, int64_t S, int64_t d)
        : T(T), S(S), d(d), width(whole(S)), q(block() * d), k(width * d), v(width * d),
          turned(width * d), weights(block() * width), totals(block()) {}

    int64_t block() const { return std::min(QUERIES, T); }

    // ``weights`` over ``totals`` become softmax(scale q k^T) of ``rows`` queries from the first on.
    // Weights of keys that a query may not see are 0.
    void attend(int64_t first, int64_t rows, float scale, bool causal) {
        multiply(rows, width, d, {q.data(), d, 1}, turned.data(), width, weights.data(), width);
        for (int64_t r = 0; r < rows; ++r) {
            float* x = weights.data() + r * width;
            const int64_t seen = causal ? std::min(first + r + 1, S) : S;
            Vector top = fill(-INFINITY), total = fill(0.f);
            for (int64_t i = 0; i < seen; i += 16) {
                const Vector scaled = mul(load(x + i), fill(scale));
                store(x + i, scaled);
                top = max_first(top, seen - i, scaled);
            }
            const Vector most = fill(greatest(top));
            for (int64_t i = 0; i < seen; i += 16) {
                const Vector e = exp_negative(sub(load(x + i), most));
                store(x + i, e);
                total = add_first(total, seen - i, e);
            }
            std::fill(x + seen, x + width, 0.f);
            totals[r] = sum(total);
        }
    }
};

template <typename Number>
struct Packed {  // a matrix with the first row of each sentence, and the numbers in a row
    Number* numbers;
    int64_t width;
    const int64_t* starts;

    Number* at(int64_t sentence, int64_t column) const {
        return numbers + starts[sentence] * width + column;
    }
    int64_t rows(int64_t sentence) const { return starts[sentence + 1] - starts[sentence]; }
};

template <typename Number>
void read_keys(Head& head, Packed<const Number> K, Packed<const Number> V, int64_t b, int64_t column) {
    read_head(K.at(b, column), K.width, head.S, head.d, head.k.data());
    read_head(V.at(b, column), V.width, head.S, head.d, head.v.data());
}

template <typename Number>
void forward(Packed<const Number> Q, Packed<const Number> K, Packed<const Number> V, Packed<Number> out,
             int64_t B, int64_t h, int64_t d, float scale, bool causal, int64_t threads) {
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t task = 0; task < B * h; ++task) {
        const int64_t b = task / h, column = task % h * d;
        Head head(Q.rows(b), K.rows(b), d);
        Floats context(head.block() * d);
        read_keys(head, K, V, b, column);
        transpose(head.k.data(), d, head.width, head.turned.data());
        for (int64_t first = 0; first < head.T; first += QUERIES) {
            const int64_t rows = std::min(QUERIES, head.T - first);
            read_head(Q.at(b, column) + first * Q.width, Q.width, rows, d, head.q.data());
            head.attend(first, rows, scale, causal);
            multiply(rows, d, head.S, {head.weights.data(), head.width, 1}, head.v.data(), d,
                     context.data(), d);
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t i = 0; i < d; i += 16) {
                    float* x = context.data() + r * d + i;
                    store(x, div(load(x), fill(head.totals[r])));
                }
            write_head(context.data(), rows, d, out.at(b, column) + first * out.width, out.width);
        }
    }
}

template <typename Number>
void backward(Packed<const Number> Q, Packed<const Number> K, Packed<const Number> V,
              Packed<const Number> grad, Packed<Number> grad_Q, Packed<Number> grad_K,
              Packed<Number> grad_V, int64_t B, int64_t h, int64_t d, float scale, bool causal,
              int64_t threads) {
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t task = 0; task < B * h; ++task) {
        const int64_t b = task / h, column = task % h * d;
        Head head(Q.rows(b), K.rows(b), d);
        const int64_t S = head.S, width = head.width;
        const int64_t block = head.block();
        Floats turned_v(width * d), g(block * d), grad_q(block * d), grad_weights(block * width);
        Floats grad_k(S * d), grad_v(S * d);
        read_keys(head, K, V, b, column);
        transpose(head.k.data(), d, width, head.turned.data());
        transpose(head.v.data(), d, width, turned_v.data());
        for (int64_t first = 0; first < head.T; first += QUERIES) {
            const int64_t rows = std::min(QUERIES, head.T - first);
            read_head(Q.at(b, column) + first * Q.width, Q.width, rows, d, head.q.data());
            read_head(grad.at(b, column) + first * grad.width, grad.width, rows, d, g.data());
            head.attend(first, rows, scale, causal);
            multiply(rows, width, d, {g.data(), d, 1}, turned_v.data(), width,
                     grad_weights.data(), width);
            for (int64_t r = 0; r < rows; ++r) {
                float *x = head.weights.data() + r * width, *y = grad_weights.data() + r * width;
                const Vector share = fill(1 / head.totals[r]);
                Vector mean = fill(0.f);
                for (int64_t i = 0; i < width; i += 16) {
                    const Vector weight = mul(load(x + i), share);
                    store(x + i, weight);
                    mean = multiply_add(weight, load(y + i), mean);
                }
                // d scores = weights (d weights - their mean), by the softmax
                const Vector all = fill(sum(mean));
                for (int64_t i = 0; i < width; i += 16) {
                    const Vector of_scores = mul(load(x + i), sub(load(y + i), all));
                    store(y + i, mul(of_scores, fill(scale)));
                }
            }
            const Left of_queries = {grad_weights.data(), width, 1};
            multiply(rows, d, S, of_queries, head.k.data(), d, grad_q.data(), d);
            write_head(grad_q.data(), rows, d, grad_Q.at(b, column) + first * grad_Q.width,
                       grad_Q.width);
            const bool added = first > 0;
            const Left of_keys = {grad_weights.data(), 1, width};
            multiply(S, d, rows, of_keys, head.q.data(), d, grad_k.data(), d, added);
            const Left of_values = {head.weights.data(), 1, width};
            multiply(S, d, rows, of_values, g.data(), d, grad_v.data(), d, added);
        }
        write_head(grad_k.data(), S, d, grad_K.at(b, column), grad_K.width);
        write_head(grad_v.data(), S, d, grad_V.at(b, column), grad_V.width);
    }
}

template <typename Number>
void run(const void* Q, int64_t q_width, const void* K, const void* V, int64_t kv_width,
         const int64_t* q_starts, const int64_t* k_starts, const void* grad, void* out, void* grad_K,
         void* grad_V, int64_t B, int64_t h, int64_t d, float scale, bool causal, int64_t threads) {
    const Packed<const Number> q{(const Number*)Q, q_width, q_starts};
    const Packed<const Number> k{(const Number*)K, kv_width, k_starts};
    const Packed<const Number> v{(const Number*)V, kv_width, k_starts};
    if (grad)
        backward<Number>(q, k, v, {(const Number*)grad, h * d, q_starts},
                         {(Number*)out, q_width, q_starts}, {(Number*)grad_K, kv_width, k_starts},
                         {(Number*)grad_V, kv_width, k_starts}, B, h, d, scale, causal, threads);
    else
        forward<Number>(q, k, v, {(Number*)out, h * d, q_starts}, B, h, d, scale, causal, threads);
}

}  // namespace

// Queries in rows of q_width numbers, keys and values in rows of kv_width; the rows of sentence b are
// starts[b] up to starts[b + 1]. Without ``grad`` it writes the attention [rows, h d] to ``out``. With
// the attention's gradient, it writes the gradients of queries, keys and values to ``out``, grad_K
// and grad_V, in rows as wide as theirs. All numbers are BFloat16 if ``bfloat16``, else float.
extern "C" void mt_attention(const void* Q, int64_t q_width, const void* K, const void* V,
                             int64_t kv_width, const int64_t* q_starts, const int64_t* k_starts,
                             const void* grad, void* out, void* grad_K, void* grad_V,
                             int64_t bfloat16, int64_t B, int64_t h, int64_t d, float scale,
                             int64_t causal, int64_t threads) {
    if (bfloat16)
        run<BFloat16>(Q, q_width, K, V, kv_width, q_starts, k_starts, grad, out, grad_K, grad_V, B,
                      h, d, scale, causal, threads);
    else
        run<float>(Q, q_width, K, V, kv_width, q_starts, k_starts, grad, out, grad_K, grad_V, B, h,
                   d, scale, causal, threads);
}
