// Q4_0: 32 codes of four bits and a factor.
#pragma once
#include "format.h"

namespace LS_ISA {

struct Q4_0 {
    static constexpr int TYPE = 2, K = 32, BYTES = 18, BITS = 4, SUB = 32, OFFSET = 8;
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
    LS_INLINE void codes(const Packed * p, int, W * w) { nibbles(p->low, w); }
    LS_INLINE F factor(const Packed * p, int) { return load_f16(p->d); }
};

}  // namespace LS_ISA
