// Products of many rows by tiles: 16 columns, 32 numbers and up to 16 rows in one instruction.
//
// Sums of products of bytes are whole numbers, by tiles the same as by vpdpbusd; what follows in floating point is `added`, as
// everywhere. So a row has the bits that it has in a narrow pass.
//
// The unit of tiles and that of 512 bits share a port: they take turns. Storing sums takes as long as computing them, so
// those of a group are stored after the next groups' were begun.
#pragma once

namespace LS_ISA {

constexpr int HEIGHT = 16;   // rows of a tile, at most
constexpr int BESIDE = 4;    // groups of columns: a tile of rows serves them all
constexpr int CHUNK = 4;     // parts of 32 numbers whose codes lie unpacked in the first cache
constexpr int TURN = 2;      // parts whose sums do
constexpr int AHEAD = 2;     // chunks between what is computed with and what is fetched
constexpr int RESULTS = 128; // rows whose results wait for the next chunk

// Rows from which on tiles win; measured.
template <class T> constexpr int TILES_FROM = T::SUB == 32 ? 11 : 28;

template <class T> struct alignas(64) Panel {
    W codes[CHUNK][8];  // signed
    Scales scales[CHUNK];
};
struct alignas(64) WholeSums {
    int32_t of[HEIGHT][LANES];
};
// Of a turn: parts, halves where SUB is 16, groups.
template <class T> using Turn = WholeSums[TURN][32 / T::SUB][BESIDE];
using Results = F[BESIDE][RESULTS + HEIGHT];

// Packed bytes of a part.
template <class T> constexpr int SHARE = sizeof(typename T::Packed) / (T::K / 32);

template <class T> LS_APART void unpack(const typename T::Packed * w, int64_t from, int count, Panel<T> * to) {
    constexpr int PARTS = T::K / 32;
    const W offset = _mm512_set1_epi8((char) T::OFFSET);
    for (int i = 0; i < count; i++) {
        const typename T::Packed * p = w + (from + i) / PARTS;
        const int j = (int) ((from + i) % PARTS);
        W codes[8];
        T::codes(p, j, codes);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) to->codes[i][g] = _mm512_sub_epi8(codes[g], offset);
        to->scales[i] = scales<T>(p, j);
    }
}

// Numbers of some rows beside each other, wherever the rows lie.
static inline void gather(const Activation * const * rows, int height, int64_t from, int64_t left, Activation (*to)[CHUNK]) {
    if (left >= CHUNK) {
        for (int r = 0; r < height; r++) memcpy(to[r], rows[r] + from, sizeof to[r]);
    } else {
        for (int r = 0; r < height; r++) memcpy(to[r], rows[r] + from, left * sizeof(Activation));
    }
}

#define LS_TILE_GROUP(g, codes_in, sums_in)                                                                  \
    if (g < groups) {                                                                                         \
        LS_TILE_LOAD(codes_in, panels[g].codes[i + b] + T::SUB / 4 * half, 64);                               \
        if (before) LS_TILE_STORE(sums_in, before + g);                                                       \
        LS_TILE_ZERO(sums_in);                                                                                \
        LS_TILE_MULTIPLY(sums_in, 0, codes_in);                                                               \
    }
#define LS_TILE_LAST(g, sums_in) \
    if (g < groups) LS_TILE_STORE(sums_in, before + g);

// Whole sums of N parts from i on.
template <class T, int N>
LS_INLINE void multiply_tiles(const Panel<T> * panels, int groups, int i, const Activation (*rows)[CHUNK], Turn<T> & sums) {
    WholeSums * before = nullptr;
#pragma GCC unroll 4
    for (int b = 0; b < N; b++)
#pragma GCC unroll 2
        for (int half = 0; half < 32 / T::SUB; half++) {
            LS_TILE_LOAD(0, rows[0][i + b].q + T::SUB * half, sizeof rows[0]);
            LS_TILE_GROUP(0, 1, 4)
            LS_TILE_GROUP(1, 2, 5)
            LS_TILE_GROUP(2, 3, 6)
            LS_TILE_GROUP(3, 1, 7)
            before = sums[b][half];
        }
    LS_TILE_LAST(0, 4)
    LS_TILE_LAST(1, 5)
    LS_TILE_LAST(2, 6)
    LS_TILE_LAST(3, 7)
}

// N parts from i on, added to the results of `height` rows.
template <class T, int N>
LS_INLINE void add_turn(const Panel<T> * panels, int groups, int i, const Activation (*rows)[CHUNK], int height, F (*results)[RESULTS + HEIGHT],
                        const char * ahead, int64_t apart) {
    Turn<T> sums;
    multiply_tiles<T, N>(panels, groups, i, rows, sums);
    for (int g = 0; g < groups; g++) {
        if (ahead)
            for (int b = 0; b < N * SHARE<T>; b += 64) __builtin_prefetch(ahead + g * apart + i * SHARE<T> + b, 0, 3);
        Scales s[N];
#pragma GCC unroll 4
        for (int b = 0; b < N; b++) s[b] = panels[g].scales[i + b];
        for (int r = 0; r < height; r++) {
            F result = results[g][r];
#pragma GCC unroll 4
            for (int b = 0; b < N; b++)
                result = added<T>(result, _mm512_load_si512(sums[b][0][g].of[r]), _mm512_load_si512(sums[b][32 / T::SUB - 1][g].of[r]), s[b],
                                  &rows[r][i + b]);
            results[g][r] = result;
        }
    }
}

template <class T>
LS_APART void add_chunk(const Panel<T> * panels, int groups, int count, const Activation (*rows)[CHUNK], int height, F (*results)[RESULTS + HEIGHT],
                        const char * ahead, int64_t apart) {
    int i = 0;
    for (; i + TURN <= count; i += TURN) add_turn<T, TURN>(panels, groups, i, rows, height, results, ahead, apart);
    for (; i < count; i++) add_turn<T, 1>(panels, groups, i, rows, height, results, ahead, apart);
}

// See `multiply`.
template <class T>
static void tiled_multiply(const typename T::Packed * w, int64_t k, int64_t columns, const Activation * const * rows,
                           float * const * out, int64_t n, int64_t from, int64_t to) {
    const int64_t parts = k / 32, blocks = k / T::K;
    // So many rows that their numbers stay in the second cache, in shares of even size.
    const int64_t fit = (768 << 10) / (parts * (int64_t) sizeof(Activation)) / HEIGHT * HEIGHT;
    const int64_t most = fit < HEIGHT ? HEIGHT : fit < RESULTS ? fit : RESULTS, shares = (n + most - 1) / most;
    const TileShapes before = tiles_in_use();
    Panel<T> panels[BESIDE];
    Results results;
    alignas(64) Activation gathered[2][HEIGHT][CHUNK];  // those of the next tile, too: tiles wait for what was just stored
    int side = 0;
    for (int64_t share = 0; share < shares; share++) {
        const int64_t first = n * share / shares, count = n * (share + 1) / shares - first;
        // Tiles of one height; the last one has rows of the one before it, too.
        const int tiles = (int) ((count + HEIGHT - 1) / HEIGHT), height = (int) ((count + tiles - 1) / tiles);
        const auto row_of = [&](int t) { return first + (t * height < count - height ? t * height : count - height); };
        const auto gather_tile = [&](int t, int64_t c) { gather(rows + row_of(t), height, c, parts - c, gathered[side]); };
        configure_tiles(tiles_for(height, T::SUB));
        gather_tile(0, 0);
        for (int64_t g = from; g < to; g += BESIDE) {
            const int groups = (int) (to - g < BESIDE ? to - g : BESIDE);
            for (int i = 0; i < groups; i++)
                for (int r = 0; r < tiles * height; r++) results[i][r] = zero();
            for (int64_t c = 0; c < parts; c += CHUNK) {
                const int some = (int) (parts - c < CHUNK ? parts - c : CHUNK);
                for (int i = 0; i < groups; i++) unpack<T>(w + (g + i) * blocks, c, some, panels + i);
                const int64_t later = c + AHEAD * CHUNK, bunches = later / parts;
                const char * ahead = (const char *) (w + (g + bunches * BESIDE) * blocks) + (later - bunches * parts) * SHARE<T>;
                for (int t = 0; t < tiles; t++) {
                    const Activation (*now)[CHUNK] = gathered[side];
                    side ^= 1;
                    if (t + 1 < tiles) {
                        gather_tile(t + 1, c);
                    } else {
                        gather_tile(0, c + CHUNK < parts ? c + CHUNK : 0);
                    }
                    add_chunk<T>(panels, groups, some, now, height, (F (*)[RESULTS + HEIGHT]) &results[0][t * height],
                                 t == 0 ? ahead : nullptr, blocks * sizeof(typename T::Packed));
                }
            }
            for (int t = 0; t < tiles; t++)
                for (int r = 0; r < height; r++)
                    for (int i = 0; i < groups; i++) {
                        const int64_t left = columns - (g + i) * COLUMNS;
                        put(&results[i][t * height + r], out[row_of(t) + r] + (g + i) * COLUMNS, (int) (left < COLUMNS ? left : COLUMNS));
                    }
        }
    }
    configure_tiles(before);
}

}  // namespace LS_ISA
