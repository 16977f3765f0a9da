// Q6_K: 256 codes of six bits; a signed factor of eight bits for 16 of them.
#pragma once
#include "format.h"

namespace LS_ISA {

struct Q6_K {
    static constexpr int TYPE = 14, K = 256, BYTES = 210, BITS = 6, SUB = 16, OFFSET = 32;
    static constexpr bool MINIMA = false;

    struct Packed {
        uint16_t d[LANES];
        int8_t scale[16][LANES];
        struct {
            uint8_t low[4 * WIDE], high[2 * WIDE];
        } part[8];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        memcpy(&out->d[c], block + 208, 2);
        for (int j = 0; j < 16; j++) out->scale[j][c] = (int8_t) block[192 + j];
        for (int j = 0; j < 8; j++) {
            uint8_t codes[32];
            const uint8_t * low = block + j / 4 * 64 + (j & 1) * 32, * high = block + 128 + j / 4 * 32;
            for (int x = 0; x < 32; x++)
                codes[x] = (uint8_t) ((low[x] >> (j & 2) * 2 & 15) | (high[x] >> (j & 3) * 2 & 3) << 4);
            pack_nibbles(codes, c, out->part[j].low);
            pack_two_bits(codes, c, out->part[j].high);
        }
    }
    LS_INLINE void codes(const Packed * p, int j, W * w) {
        nibbles(p->part[j].low, w);
        add_two_bits(p->part[j].high, w);
    }
    LS_INLINE F factor(const Packed * p, int j) {
        return mul(load_f16(p->d), to_float(load_signed_bytes(p->scale[j])));
    }
};

}  // namespace LS_ISA
