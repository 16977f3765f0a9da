// Q5_0: 32 codes of five bits and a factor.
#pragma once
#include "format.h"

namespace LS_ISA {

struct Q5_0 {
    static constexpr int TYPE = 6, K = 32, BYTES = 22, BITS = 5, SUB = 32, OFFSET = 16;
    static constexpr bool MINIMA = false;

    struct Packed {
        uint16_t d[LANES];
        uint8_t low[4 * WIDE], fifth[WIDE];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        uint8_t codes[32];
        uint32_t high;
        memcpy(&out->d[c], block, 2);
        memcpy(&high, block + 2, 4);
        for (int x = 0; x < 16; x++) {
            codes[x] = (uint8_t) ((block[6 + x] & 15) | (high >> x & 1) << 4);
            codes[x + 16] = (uint8_t) (block[6 + x] >> 4 | (high >> (x + 16) & 1) << 4);
        }
        pack_nibbles(codes, c, out->low);
        pack_bit(codes, 4, c, out->fifth);
    }
    LS_INLINE void codes(const Packed * p, int, W * w) {
        nibbles(p->low, w);
        add_bit(p->fifth, w);
    }
    LS_INLINE F factor(const Packed * p, int) { return load_f16(p->d); }
};

}  // namespace LS_ISA
