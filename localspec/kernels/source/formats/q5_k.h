// Q5_K: 256 codes of five bits; a factor and a minimum of six bits for 32 of them.
#pragma once
#include "format.h"

namespace LS_ISA {

struct Q5_K {
    static constexpr int TYPE = 13, K = 256, BYTES = 176, BITS = 5, SUB = 32, OFFSET = 0;
    static constexpr bool MINIMA = true;

    struct Packed {
        uint16_t d[LANES], least[LANES];
        SixBits six;
        struct {
            uint8_t low[4 * WIDE], fifth[WIDE];
        } part[8];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        memcpy(&out->d[c], block, 2);
        memcpy(&out->least[c], block + 2, 2);
        pack_six_bits(block + 4, c, &out->six);
        const uint8_t * high = block + 16;
        for (int j = 0; j < 8; j++) {
            uint8_t codes[32];
            const uint8_t * q = block + 48 + j / 2 * 32;
            for (int x = 0; x < 32; x++)
                codes[x] = (uint8_t) ((q[x] >> (j & 1) * 4 & 15) | (high[x] >> j & 1) << 4);
            pack_nibbles(codes, c, out->part[j].low);
            pack_bit(codes, 4, c, out->part[j].fifth);
        }
    }
    LS_INLINE void codes(const Packed * p, int j, W * w) {
        nibbles(p->part[j].low, w);
        add_bit(p->part[j].fifth, w);
    }
    LS_INLINE F factor(const Packed * p, int j) { return mul(load_f16(p->d), six_bits_scale(&p->six, j)); }
    LS_INLINE F minimum(const Packed * p, int j) { return mul(load_f16(p->least), six_bits_minimum(&p->six, j)); }
};

}  // namespace LS_ISA
