// Products of packed weights with rows of numbers.
//
// Every result is a sum over k in one order, by the same instructions, whatever the number of rows, so the
// same row has the same bits in every pass. Weights are unpacked once for all rows of a tile.
#pragma once
#include "formats/format.h"
#include "table.h"

#define LS_APART static __attribute__((noinline))

namespace LS_ISA {

// Bytes between what is computed with and what is fetched. A single row waits for memory alone, and its next
// loads are under way by themselves. More rows compute for longer than the processor looks ahead: the second
// cache has to have the weights long before, the first shortly before.
constexpr int ALONE = 4096, FAR = 16384, NEAR = 2048;

template <int ROWS_OF_TILE> LS_INLINE void fetch(const void * p, int bytes) {
    const char * at = (const char *) p;
    for (int i = 0; i < bytes; i += 64) {
        if (ROWS_OF_TILE == 1) {
            __builtin_prefetch(at + ALONE + i, 0, 3);
        } else {
            __builtin_prefetch(at + FAR + i, 0, 2);
            __builtin_prefetch(at + NEAR + i, 0, 3);
        }
    }
}

// ---- numbers rounded to 8 bits ----

template <int SUB, int OFFSET> static void round_row(const float * x, void * out, int64_t count) {
    Activation * a = (Activation *) out;
    constexpr int PARTS = 32 / LANES;
    for (int64_t b = 0; b < count; b++, x += 32, a++) {
        F v[PARTS], most = zero(), odd = zero();
#pragma GCC unroll 8
        for (int i = 0; i < PARTS; i++) {
            v[i] = load(x + i * LANES);
            most = larger(most, magnitude(v[i]));
            odd = fma(v[i], zero(), odd);  // zero, or NaN for what is no number: a row with it gives NaN
        }
        const float peak = largest(most);
        const float d = peak / 127.0f, inverse = peak > 0.0f ? 127.0f / peak : 0.0f;
        int32_t sums[2] = {0, 0};
#pragma GCC unroll 8
        for (int i = 0; i < PARTS; i++) {
            const I q = to_int(mul(v[i], all(inverse)));  // to the nearest
            store_bytes(a->q + i * LANES, q);
            sums[i * LANES / 16] += sum_int(q);
        }
        a->d = d + sum(odd);
        a->total = a->d * (float) (sums[0] + sums[1]);
        if (SUB == 32) {
            a->start[0] = -OFFSET * (sums[0] + sums[1]);
            a->start[1] = 0;
        } else {
            a->start[0] = -OFFSET * sums[0];
            a->start[1] = -OFFSET * sums[1];
        }
    }
}

// ---- quantized weights ----

// Factors of part j of a block: its own and its minimum, or one for each half where SUB is 16.
struct Scales {
    F first, second;
};

template <class T> LS_INLINE Scales scales(const typename T::Packed * p, int j) {
    if constexpr (T::MINIMA) {
        return {T::factor(p, j), T::minimum(p, j)};
    } else if constexpr (T::SUB == 32) {
        return {T::factor(p, j), zero()};
    } else {
        return {T::factor(p, 2 * j), T::factor(p, 2 * j + 1)};
    }
}

// sum + the products of a part with a row: the whole sums of both halves, or of all in `low`, times their factors.
template <class T> LS_INLINE F added(F sum, I low, I high, const Scales & s, const Activation * a) {
    if constexpr (T::SUB == 32) {
        sum = fma(to_float(low), mul(s.first, all(a->d)), sum);
        return T::MINIMA ? fnma(s.second, all(a->total), sum) : sum;
    } else {
        return fma(fma(to_float(low), s.first, mul(to_float(high), s.second)), all(a->d), sum);
    }
}

#ifdef LS_PAIRS
// Part j of block p times an even number of rows, two at once; the sums are those of `tile`, in its order.
template <class T, int R>
LS_INLINE void paired(const typename T::Packed * p, int j, const W * codes, const Activation * const * rows, int64_t at, F (*acc)[SPAN]) {
    W pairs[8];
    in_pairs(codes, pairs);
#pragma GCC unroll 16
    for (int r = 0; r < R; r += 2) {
        const Activation * two[2] = {rows[r] + at, rows[r + 1] + at};
        I low[2], high[2];
        if constexpr (T::SUB == 32) {
            dot_two<8>(pairs, two[0]->q, two[1]->q, two[0]->start[0], two[1]->start[0], low);
        } else {
            dot_two<4>(pairs, two[0]->q, two[1]->q, two[0]->start[0], two[1]->start[0], low);
            dot_two<4>(pairs + 4, two[0]->q + 16, two[1]->q + 16, two[0]->start[1], two[1]->start[1], high);
        }
        const Scales s = scales<T>(p, j);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) acc[r + i][0] = added<T>(acc[r + i][0], low[i], high[i], s, two[i]);
    }
}
#endif

// sum[r][c]: N registers of codes from FROM on of column register c, times the numbers of row r.
#ifndef LS_DOTS
template <int BITS, int FROM, int N, int Q, class A> LS_INLINE void dots(const W (*codes)[8], const A * const * a, I (*sum)[SPAN]) {
    static_assert(Q == 1 && SPAN == 1, "an instruction set with more has its own");
    sum[0][0] = dot<BITS, N>(codes[0] + FROM, a[0]->q + 4 * FROM, a[0]->start[FROM / 4]);
}
#endif

// Part j of block p times Q rows, added to the sums of each.
template <class T, int Q>
LS_INLINE void add_part(const typename T::Packed * p, int j, const W (*codes)[8], const Activation * const * rows, int64_t at,
                        F (*acc)[SPAN]) {
    const Activation * a[Q];
#pragma GCC unroll 4
    for (int r = 0; r < Q; r++) a[r] = rows[r] + at;
    I low[Q][SPAN], high[Q][SPAN];
    if constexpr (T::SUB == 32) {
        dots<T::BITS, 0, 8, Q>(codes, a, low);
    } else {
        dots<T::BITS, 0, 4, Q>(codes, a, low);
        dots<T::BITS, 4, 4, Q>(codes, a, high);
    }
#pragma GCC unroll 2
    for (int c = 0; c < SPAN; c++) {
        const Scales s = scales<T>(p + c, j);
#pragma GCC unroll 4
        for (int r = 0; r < Q; r++) acc[r][c] = added<T>(acc[r][c], low[r][c], high[r][c], s, a[r]);
    }
}

// The sums of a row of a group, of which `kept` columns are there.
LS_INLINE void put(const F * sums_of, float * out, int kept) {
#pragma GCC unroll 2
    for (int c = 0; c < SPAN; c++, kept -= LANES) {
        if (kept >= LANES) {
            store(out + c * LANES, sums_of[c]);
        } else if (kept > 0) {
            float all_of_them[LANES];
            store(all_of_them, sums_of[c]);
            memcpy(out + c * LANES, all_of_them, kept * sizeof(float));
        }
    }
}

// A group of columns times R rows. Never inlined: the compiler needs all registers for it.
template <class T, int R>
LS_APART void tile(const typename T::Packed * w, int64_t blocks, const Activation * const * rows, float * const * out,
                 int kept) {
    constexpr int PARTS = T::K / 32, SHARE = SPAN * sizeof(typename T::Packed) / PARTS;
    constexpr int Q = together<T::BITS>();
    F acc[R][SPAN];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        for (int c = 0; c < SPAN; c++) acc[r][c] = zero();
    for (int64_t b = 0; b < blocks; b++) {
        const typename T::Packed * p = w + b * SPAN;
        if (PARTS == 1) fetch<R>(p, SHARE);
        for (int j = 0; j < PARTS; j++) {
            if (PARTS > 1) fetch<R>((const char *) p + j * SHARE, SHARE);
            const int64_t at = b * PARTS + j;
            W codes[SPAN][8];
#pragma GCC unroll 2
            for (int c = 0; c < SPAN; c++) T::codes(p + c, j, codes[c]);
#ifdef LS_PAIRS
            constexpr int ALONE_FROM = R / 2 * 2;
            if constexpr (ALONE_FROM > 0) paired<T, ALONE_FROM>(p, j, codes[0], rows, at, acc);
#else
            constexpr int ALONE_FROM = 0;
#endif
            constexpr int WHOLE = (R - ALONE_FROM) / Q * Q + ALONE_FROM;
#pragma GCC unroll 16
            for (int r = ALONE_FROM; r < WHOLE; r += Q) add_part<T, Q>(p, j, codes, rows + r, at, acc + r);
            if constexpr (R > WHOLE) add_part<T, R - WHOLE>(p, j, codes, rows + WHOLE, at, acc + WHOLE);
        }
    }
    for (int r = 0; r < R; r++) put(acc[r], out[r], kept);
}

template <class T, int R>
static void tiles(const typename T::Packed * w, int64_t blocks, const Activation * const * rows, float * const * out,
                  int kept, int n) {
    if (n == R) {
        tile<T, R>(w, blocks, rows, out, kept);
    } else if constexpr (R > 1) {
        tiles<T, R - 1>(w, blocks, rows, out, kept, n);
    }
}

#ifdef LS_TILES
}  // namespace LS_ISA
#include "tiles.h"
namespace LS_ISA {
#endif

// Columns of groups [from, to) for n rows. `rows` and `out` have n places; `columns` is the number that the
// matrix has in all.
template <class T>
static void multiply(const void * weights, int64_t k, int64_t columns, const void * const * rows, float * const * out,
                     int64_t n, int64_t from, int64_t to) {
    const typename T::Packed * w = (const typename T::Packed *) weights;
    const int64_t blocks = k / T::K;
#ifdef LS_TILES
    if (n >= TILES_FROM<T>) return tiled_multiply<T>(w, k, columns, (const Activation * const *) rows, out, n, from, to);
#endif
    float * places[ROWS];
    // So many rows that their numbers stay in the second cache while the columns go by.
    int64_t most = (384 << 10) / (k / 32 * (int64_t) sizeof(Activation)) / ROWS * ROWS;
    if (most < ROWS) most = ROWS;
    for (int64_t first = 0; first < n; first += most) {
        const int64_t end = first + most < n ? first + most : n;
        for (int64_t g = from; g < to; g++) {
            const int kept = (int) (columns - g * COLUMNS < COLUMNS ? columns - g * COLUMNS : COLUMNS);
            for (int64_t r = first; r < end; r += ROWS) {
                const int count = (int) (end - r < ROWS ? end - r : ROWS);
                for (int i = 0; i < count; i++) places[i] = out[r + i] + g * COLUMNS;
                tiles<T, ROWS>(w + g * blocks * SPAN, blocks, (const Activation * const *) rows + r, places, kept, count);
            }
        }
    }
}

// Columns of a group, from `bytes` apart on; columns that the matrix lacks stay zero.
template <class T> static void pack_group(const uint8_t * from, size_t bytes, int count, int64_t k, void * to) {
    typename T::Packed * out = (typename T::Packed *) to;
    const int64_t blocks = k / T::K;
    if (count < COLUMNS) memset((void *) out, 0, blocks * SPAN * sizeof(typename T::Packed));
    for (int64_t b = 0; b < blocks; b++)
        for (int c = 0; c < count; c++) T::pack(from + c * bytes + b * T::BYTES, c % LANES, out + b * SPAN + c / LANES);
}

// ---- weights in floating point ----

// Numbers from place i on of ggml's type: 0 is F32, 1 F16, 30 BF16.
template <int TYPE> LS_INLINE F load_number(const void * p, int64_t i) {
    if constexpr (TYPE == 0) {
        return load((const float *) p + i);
    } else if constexpr (TYPE == 1) {
        return load_f16((const uint16_t *) p + i);
    } else {
        return load_bf16((const uint16_t *) p + i);
    }
}

// Numbers of step i of a group's columns times one number of each of R rows, added to the sums.
template <int TYPE, int R> LS_INLINE void dense_step(const char * w, int64_t i, const float * const * rows, F (*acc)[SPAN]) {
    F numbers[SPAN];
#pragma GCC unroll 2
    for (int c = 0; c < SPAN; c++) numbers[c] = load_number<TYPE>(w, i * COLUMNS + c * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        const F x = all(rows[r][i]);
#pragma GCC unroll 2
        for (int c = 0; c < SPAN; c++) acc[r][c] = fma(numbers[c], x, acc[r][c]);
    }
}

template <int TYPE, int R>
LS_APART void dense_tile(const char * w, int64_t k, const float * const * rows, float * const * out, int kept) {
    constexpr int SIZE = TYPE == 0 ? 4 : 2;
    F even[R][SPAN], odd[R][SPAN];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        for (int c = 0; c < SPAN; c++) even[r][c] = odd[r][c] = zero();
    int64_t i = 0;
    for (; i + 2 <= k; i += 2) {
        fetch<R>(w + i * COLUMNS * SIZE, 2 * COLUMNS * SIZE);
        dense_step<TYPE, R>(w, i, rows, even);
        dense_step<TYPE, R>(w, i + 1, rows, odd);
    }
    if (i < k) dense_step<TYPE, R>(w, i, rows, even);
    for (int r = 0; r < R; r++) {
        F total[SPAN];
        for (int c = 0; c < SPAN; c++) total[c] = add(even[r][c], odd[r][c]);
        put(total, out[r], kept);
    }
}

template <int TYPE, int R>
static void dense_tiles(const char * w, int64_t k, const float * const * rows, float * const * out, int kept, int n) {
    if (n == R) {
        dense_tile<TYPE, R>(w, k, rows, out, kept);
    } else if constexpr (R > 1) {
        dense_tiles<TYPE, R - 1>(w, k, rows, out, kept, n);
    }
}

template <int TYPE>
static void dense_multiply(const void * weights, int64_t k, int64_t columns, const void * const * rows,
                           float * const * out, int64_t n, int64_t from, int64_t to) {
    constexpr int SIZE = TYPE == 0 ? 4 : 2;
    float * places[DENSE_ROWS];
    int64_t most = (256 << 10) / (k * 4) / DENSE_ROWS * DENSE_ROWS;
    if (most < DENSE_ROWS) most = DENSE_ROWS;
    for (int64_t first = 0; first < n; first += most) {
        const int64_t end = first + most < n ? first + most : n;
        for (int64_t g = from; g < to; g++) {
            const int kept = (int) (columns - g * COLUMNS < COLUMNS ? columns - g * COLUMNS : COLUMNS);
            for (int64_t r = first; r < end; r += DENSE_ROWS) {
                const int count = (int) (end - r < DENSE_ROWS ? end - r : DENSE_ROWS);
                for (int i = 0; i < count; i++) places[i] = out[r + i] + g * COLUMNS;
                dense_tiles<TYPE, DENSE_ROWS>((const char *) weights + g * k * COLUMNS * SIZE, k,
                                              (const float * const *) rows + r, places, kept, count);
            }
        }
    }
}

template <int SIZE> static void dense_pack(const uint8_t * from, size_t bytes, int count, int64_t k, void * to) {
    uint8_t * out = (uint8_t *) to;
    if (count < COLUMNS) memset(out, 0, (size_t) k * COLUMNS * SIZE);
    for (int64_t i = 0; i < k; i++)
        for (int c = 0; c < count; c++) memcpy(out + (i * COLUMNS + c) * SIZE, from + c * bytes + i * SIZE, SIZE);
}

template <class T> constexpr Format quantized() {
    return {T::TYPE, T::K, SPAN * sizeof(typename T::Packed), sizeof(Activation), round_row<T::SUB, T::OFFSET>, pack_group<T>, multiply<T>};
}

template <int TYPE, int SIZE> constexpr Format dense() {
    return {TYPE, 1, SIZE * COLUMNS, 0, nullptr, dense_pack<SIZE>, dense_multiply<TYPE>};
}

}  // namespace LS_ISA
