// Attention (scaled dot products, softmax, sums of values), each row in one order.
//
// The scores of all cells come first, then the largest of them, then their exponentials; values are added cell by
// cell. Cells that a row does not see add exact zeros. So a row's bits depend neither on the other rows of
// the pass, nor on where in the cache its cells lie as long as they lie in order. NaN and infinities reach the rows
// that see their cells, and no others.
#pragma once
#include <math.h>

#include "products.h"

namespace LS_ISA {

constexpr int ATTENTION_ROWS = 8;
constexpr int CELLS = 32;  // of a block that is made floats at once
constexpr float UNSEEN = -INFINITY;
constexpr uint16_t UNSEEN_F16 = 0xfc00;

LS_INLINE int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
LS_INLINE int64_t in_blocks(int64_t n) { return (n + CELLS - 1) / CELLS * CELLS; }

// exp(x) for x <= 0, exactly 0 below -87, NaN for NaN: the polynomial of Cephes' expf.
LS_INLINE F exponential(F x) {
    const F bounded = larger(all(-88.0f), x);
    const F n = rounded(mul(bounded, all(1.44269504088896341f)));
    const F r = fnma(n, all(-2.12194440e-4f), fnma(n, all(0.693359375f), bounded));
    F y = all(1.9875691500e-4f);
    y = fma(y, r, all(1.3981999507e-3f));
    y = fma(y, r, all(8.3334519073e-3f));
    y = fma(y, r, all(4.1665795894e-2f));
    y = fma(y, r, all(1.6666665459e-1f));
    y = fma(y, r, all(5.0000001201e-1f));
    y = fma(y, mul(r, r), add(r, all(1.0f)));
    const F power = bits_to_float(left<23>(add_int(to_int(n), all_int(127))));
    return zero_below(mul(y, power), x, -87.0f);
}

static size_t attention_scratch(int64_t cells, int64_t k_size, int64_t v_size) {
    const int64_t rows = ATTENTION_ROWS;
    return (size_t) (rows * (in_blocks(cells) + padded(k_size) + padded(v_size)) + CELLS * (padded(k_size) + padded(v_size)) +
                     in_blocks(cells) / CELLS + 64);
}

// Numbers of one cell as floats, behind them zeros up to a whole register.
LS_INLINE void read_cell(const char * from, int type, void (*read)(const void *, float *, int64_t), int64_t n, float * to) {
    if (type == 1 && n % LANES == 0) {
        for (int64_t i = 0; i < n; i += LANES) store(to + i, load_f16((const uint16_t *) from + i));
        return;
    }
    if (type == 0) {
        memcpy(to, from, n * sizeof(float));
    } else {
        read(from, to, n);
    }
    for (int64_t i = n; i < padded(n); i++) to[i] = 0.0f;
}

LS_INLINE bool sees(const uint16_t * mask, int64_t n) {
    uint16_t any = 0;
    for (int64_t i = 0; i < n; i++) any |= (uint16_t) (mask[i] ^ UNSEEN_F16);
    return any != 0;
}

// Dot products of a query with eight keys of n numbers, n a multiple of LANES.
LS_INLINE void eight_scores(const float * q, const float * keys, int64_t step, int64_t n, float * out) {
    F acc[8];
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) acc[c] = zero();
    for (int64_t i = 0; i < n; i += LANES) {
        const F x = load(q + i);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) acc[c] = fma(x, load(keys + c * step + i), acc[c]);
    }
    sums(acc, out);
}

// Values of `count` cells times their shares, added to the sums of R rows; V registers of each.
template <int R, int V>
LS_INLINE void add_values(const float * values, int64_t step, int count, const float * const * shares, float * const * sums_of,
                          int64_t at) {
    F acc[R][V];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int i = 0; i < V; i++) acc[r][i] = load(sums_of[r] + at + i * LANES);
    for (int c = 0; c < count; c++) {
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const F p = all(shares[r][c]);
#pragma GCC unroll 4
            for (int i = 0; i < V; i++) acc[r][i] = fma(p, load(values + c * step + at + i * LANES), acc[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int i = 0; i < V; i++) store(sums_of[r] + at + i * LANES, acc[r][i]);
}

LS_INLINE bool finite(const float * x, int64_t n) {  // n a multiple of LANES
    F any = zero();
    for (int64_t i = 0; i < n; i += LANES) any = fma(load(x + i), zero(), any);  // NaN from NaN and infinities
    return sum(any) == 0.0f;
}

// The sums of one row again, without the cells that it does not see: zero times infinity is not zero. Where all values
// are finite these are the bits of add_values.
static void sum_seen(const AttentionJob * job, const float * shares, float * value, float * sums_of) {
    const int64_t v_wide = padded(job->v_size);
    for (int64_t i = 0; i < v_wide; i++) sums_of[i] = 0.0f;
    for (int64_t c = 0; c < job->cells; c++) {
        if (shares[c] == 0.0f) continue;
        read_cell(job->v + c * job->v_step, job->v_type, job->v_read, job->v_size, value);
        for (int64_t i = 0; i < v_wide; i += LANES) store(sums_of + i, fma(all(shares[c]), load(value + i), load(sums_of + i)));
    }
}

static void attention(const AttentionJob * job) {
    const int rows = job->rows;
    const int64_t cells = job->cells, wide = in_blocks(cells);
    const int64_t k_size = job->k_size, v_size = job->v_size, k_wide = padded(k_size), v_wide = padded(v_size);
    float * scores = job->scratch;
    float * q = scores + rows * wide;
    float * sums_at = q + rows * k_wide;
    float * keys = sums_at + rows * v_wide;
    float * values = keys + CELLS * k_wide;
    bool * seen = (bool *) (values + CELLS * v_wide);
    float * of_row[ATTENTION_ROWS];
    float weight[ATTENTION_ROWS];

    for (int r = 0; r < rows; r++) {
        memcpy(q + r * k_wide, job->q[r], k_size * sizeof(float));
        for (int64_t i = k_size; i < k_wide; i++) q[r * k_wide + i] = 0.0f;
        for (int64_t i = 0; i < v_wide; i++) sums_at[r * v_wide + i] = 0.0f;
        of_row[r] = sums_at + r * v_wide;
        weight[r] = 0.0f;
    }

    for (int64_t block = 0; block < wide; block += CELLS) {
        const int count = (int) (cells - block < CELLS ? cells - block : CELLS);
        bool visible[ATTENTION_ROWS];
        bool any = false;
        for (int r = 0; r < rows; r++) {
            visible[r] = !job->mask || sees(job->mask[r] + block, count);
            any = any || visible[r];
        }
        seen[block / CELLS] = any;
        if (!any) {
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < CELLS; c++) scores[r * wide + block + c] = UNSEEN;
            continue;
        }
        for (int c = 0; c < count; c++)
            read_cell(job->k + (block + c) * job->k_step, job->k_type, job->k_read, k_size, keys + c * k_wide);
        for (int r = 0; r < rows; r++) {
            float * s = scores + r * wide + block;
            if (!visible[r]) {
                for (int c = 0; c < CELLS; c++) s[c] = UNSEEN;
                continue;
            }
            for (int c = 0; c < count; c += 8) eight_scores(q + r * k_wide, keys + c * k_wide, k_wide, k_wide, s + c);
            for (int i = 0; i < CELLS; i += LANES) store(s + i, mul(load(s + i), all(job->scale)));
            if (job->cap != 0.0f)
                for (int c = 0; c < count; c++) s[c] = job->cap * tanhf(s[c]);
            if (job->mask) {
                const uint16_t * mask = job->mask[r] + block;
                const F slope = all(job->slope[r]);
                int c = 0;
                for (; c + LANES <= count; c += LANES) store(s + c, add(load(s + c), mul(slope, load_f16(mask + c))));
                if (c < count) {
                    uint16_t rest[LANES] = {0};
                    memcpy(rest, mask + c, (count - c) * sizeof(uint16_t));
                    store(s + c, add(load(s + c), mul(slope, load_f16(rest))));
                }
                for (c = 0; c < count; c++) s[c] = mask[c] == UNSEEN_F16 ? UNSEEN : s[c];  // a score may be NaN
            }
            for (int c = count; c < CELLS; c++) s[c] = UNSEEN;
        }
    }

    for (int r = 0; r < rows; r++) {
        float * s = scores + r * wide;
        F most = all(UNSEEN);
        for (int64_t i = 0; i < wide; i += LANES) most = larger(most, load(s + i));
        float top = largest(most);
        if (job->sink && job->sink[r] > top) top = job->sink[r];
        if (top == UNSEEN) {  // it sees nothing
            for (int64_t i = 0; i < wide; i++) s[i] = 0.0f;
            continue;
        }
        for (int64_t i = 0; i < wide; i += LANES) store(s + i, exponential(sub(load(s + i), all(top))));
        if (job->sink) weight[r] = expf(job->sink[r] - top);
    }

    for (int64_t block = 0; block < wide; block += CELLS) {
        if (!seen[block / CELLS]) continue;
        const int count = (int) (cells - block < CELLS ? cells - block : CELLS);
        for (int c = 0; c < count; c++)
            read_cell(job->v + (block + c) * job->v_step, job->v_type, job->v_read, v_size, values + c * v_wide);
        const float * shares[ATTENTION_ROWS];
        for (int r = 0; r < rows; r++) shares[r] = scores + r * wide + block;
        for (int c = 0; c < count; c++)  // in the order of the cells
            for (int r = 0; r < rows; r++) weight[r] += shares[r][c];
        int r = 0;
        for (; r + 2 <= rows; r += 2) {
            int64_t at = 0;
            for (; at + 4 * LANES <= v_wide; at += 4 * LANES) add_values<2, 4>(values, v_wide, count, shares + r, of_row + r, at);
            for (; at < v_wide; at += LANES) add_values<2, 1>(values, v_wide, count, shares + r, of_row + r, at);
        }
        if (r < rows) {
            int64_t at = 0;
            for (; at + 4 * LANES <= v_wide; at += 4 * LANES) add_values<1, 4>(values, v_wide, count, shares + r, of_row + r, at);
            for (; at < v_wide; at += LANES) add_values<1, 1>(values, v_wide, count, shares + r, of_row + r, at);
        }
    }

    for (int r = 0; r < rows; r++) {
        if (!finite(of_row[r], v_wide)) sum_seen(job, scores + r * wide, values, of_row[r]);
        const float share = weight[r] > 0.0f ? 1.0f / weight[r] : (weight[r] == 0.0f ? 0.0f : weight[r]);
        for (int64_t i = 0; i < v_size; i++) job->out[r][i] = of_row[r][i] * share;
    }
}

// ---- products of rows that are not packed: keys and values without flash attention, small matrices ----

template <int TYPE>
static void products_of_rows(const char * a, size_t a_step, int64_t m, const char * b, size_t b_step, int64_t n, int64_t k,
                             float * out, size_t out_step) {
    constexpr int SIZE = TYPE == 0 ? 4 : 2;
    const int64_t whole = k / LANES * LANES;
    for (int64_t first = 0; first < m; first += 8) {
        const int count = (int) (m - first < 8 ? m - first : 8);
        const char * row[8];
        alignas(64) char rest[8][LANES * 4];
        for (int c = 0; c < 8; c++) {
            row[c] = a + (first + (c < count ? c : count - 1)) * a_step;
            memset(rest[c], 0, sizeof rest[c]);
            memcpy(rest[c], row[c] + whole * SIZE, (k - whole) * SIZE);
        }
        for (int64_t r = 0; r < n; r++) {
            const float * x = (const float *) (b + r * b_step);
            F acc[8];
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++) acc[c] = zero();
            for (int64_t i = 0; i < whole; i += LANES) {
                const F v = load(x + i);
#pragma GCC unroll 8
                for (int c = 0; c < 8; c++) acc[c] = fma(v, load_number<TYPE>(row[c], i), acc[c]);
            }
            if (whole < k) {
                alignas(64) float tail[LANES] = {0};
                memcpy(tail, x + whole, (k - whole) * sizeof(float));
                for (int c = 0; c < 8; c++) acc[c] = fma(load(tail), load_number<TYPE>(rest[c], 0), acc[c]);
            }
            float found[8];
            sums(acc, found);
            memcpy((char *) out + r * out_step + first * sizeof(float), found, count * sizeof(float));
        }
    }
}

static void rows_multiply(const void * a, size_t a_step, int a_type, int64_t m, const char * b, size_t b_step, int64_t n,
                          int64_t k, float * out, size_t out_step) {
    const char * from = (const char *) a;
    if (a_type == 0) products_of_rows<0>(from, a_step, m, b, b_step, n, k, out, out_step);
    if (a_type == 1) products_of_rows<1>(from, a_step, m, b, b_step, n, k, out, out_step);
    if (a_type == 30) products_of_rows<30>(from, a_step, m, b, b_step, n, k, out, out_step);
}

}  // namespace LS_ISA
