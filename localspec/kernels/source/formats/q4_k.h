// Q4_K: 256 codes of four bits; a factor and a minimum of six bits for 32 of them.
#pragma once
#include "format.h"

namespace LS_ISA {

struct Q4_K {
    static constexpr int TYPE = 12, K = 256, BYTES = 144, BITS = 4, SUB = 32, OFFSET = 0;
    static constexpr bool MINIMA = true;

    struct Packed {
        uint16_t d[LANES], least[LANES];
        SixBits six;
        uint8_t low[8][4 * WIDE];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        memcpy(&out->d[c], block, 2);
        memcpy(&out->least[c], block + 2, 2);
        pack_six_bits(block + 4, c, &out->six);
        for (int j = 0; j < 8; j++) {
            uint8_t codes[32];
            const uint8_t * q = block + 16 + j / 2 * 32;
            for (int x = 0; x < 32; x++) codes[x] = (uint8_t) (q[x] >> (j & 1) * 4 & 15);
            pack_nibbles(codes, c, out->low[j]);
        }
    }
    LS_INLINE void codes(const Packed * p, int j, W * w) { nibbles(p->low[j], w); }
    LS_INLINE F factor(const Packed * p, int j) { return mul(load_f16(p->d), six_bits_scale(&p->six, j)); }
    LS_INLINE F minimum(const Packed * p, int j) { return mul(load_f16(p->least), six_bits_minimum(&p->six, j)); }
};

}  // namespace LS_ISA
