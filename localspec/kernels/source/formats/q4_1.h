// Q4_1: 32 codes of four bits, a factor and what is added to them.
#pragma once
#include "format.h"

namespace LS_ISA {

struct Q4_1 {
    static constexpr int TYPE = 3, K = 32, BYTES = 20, BITS = 4, SUB = 32, OFFSET = 0;
    static constexpr bool MINIMA = true;

    struct Packed {
        uint16_t d[LANES], least[LANES];
        uint8_t low[4 * WIDE];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        uint8_t codes[32];
        memcpy(&out->d[c], block, 2);
        memcpy(&out->least[c], block + 2, 2);
        out->least[c] ^= 0x8000;  // a minimum is taken off
        halves(block + 4, codes);
        pack_nibbles(codes, c, out->low);
    }
    LS_INLINE void codes(const Packed * p, int, W * w) { nibbles(p->low, w); }
    LS_INLINE F factor(const Packed * p, int) { return load_f16(p->d); }
    LS_INLINE F minimum(const Packed * p, int) { return load_f16(p->least); }
};

}  // namespace LS_ISA
