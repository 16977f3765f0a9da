// IQ4_NL, IQ4_XS and MXFP4: codes of four bits that stand for the signed numbers of a table.
#pragma once
#include "format.h"

namespace LS_ISA {

alignas(16) static const int8_t UNEVEN[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
alignas(16) static const int8_t FP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

LS_INLINE void looked_up(const uint8_t * p, const int8_t * table, W * w) {
    nibbles(p, w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) w[g] = look_up(table, w[g]);
}

struct IQ4_NL {
    static constexpr int TYPE = 20, K = 32, BYTES = 18, BITS = 8, SUB = 32, OFFSET = SIGNED_SHIFT;
    static constexpr bool MINIMA = false;

    struct Packed {
        uint16_t d[LANES];
        uint8_t low[4 * WIDE];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        uint8_t codes[32];
        memcpy(&out->d[c], block, 2);
        halves(block + 2, codes);
        pack_nibbles(codes, c, out->low);
    }
    LS_INLINE void codes(const Packed * p, int, W * w) { looked_up(p->low, UNEVEN, w); }
    LS_INLINE F factor(const Packed * p, int) { return load_f16(p->d); }
};

struct IQ4_XS {
    static constexpr int TYPE = 23, K = 256, BYTES = 136, BITS = 8, SUB = 32, OFFSET = SIGNED_SHIFT;
    static constexpr bool MINIMA = false;

    struct Packed {
        uint16_t d[LANES];
        uint8_t low_scale[4][LANES], high_scale[2][LANES];  // of 8 blocks, four and two bits each
        uint8_t low[8][4 * WIDE];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        memcpy(&out->d[c], block, 2);
        for (int j = 0; j < 2; j++) out->high_scale[j][c] = block[2 + j];
        for (int j = 0; j < 4; j++) out->low_scale[j][c] = block[4 + j];
        for (int j = 0; j < 8; j++) {
            uint8_t codes[32];
            halves(block + 8 + 16 * j, codes);
            pack_nibbles(codes, c, out->low[j]);
        }
    }
    LS_INLINE void codes(const Packed * p, int j, W * w) { looked_up(p->low[j], UNEVEN, w); }
    LS_INLINE F factor(const Packed * p, int j) {
        const I low = and_int(right(load_bytes(p->low_scale[j / 2]), (j & 1) * 4), all_int(15));
        const I high = and_int(right(load_bytes(p->high_scale[j / 4]), (j & 3) * 2), all_int(3));
        return mul(load_f16(p->d), to_float(add_int(or_int(low, left<4>(high)), all_int(-32))));
    }
};

struct MXFP4 {
    static constexpr int TYPE = 39, K = 32, BYTES = 17, BITS = 8, SUB = 32, OFFSET = SIGNED_SHIFT;
    static constexpr bool MINIMA = false;

    struct Packed {
        uint8_t exponent[LANES];
        uint8_t low[4 * WIDE];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        uint8_t codes[32];
        out->exponent[c] = block[0];
        halves(block + 1, codes);
        pack_nibbles(codes, c, out->low);
    }
    LS_INLINE void codes(const Packed * p, int, W * w) { looked_up(p->low, FP4, w); }
    // 2^(e - 128), half of the block's factor, as the table has twice its numbers. For e of 0 and 1 ggml has
    // numbers below the normal ones; here they are zero, which no sum of a model can tell.
    LS_INLINE F factor(const Packed * p, int) {
        return mul(bits_to_float(left<23>(load_bytes(p->exponent))), all(0.5f));
    }
};

}  // namespace LS_ISA
