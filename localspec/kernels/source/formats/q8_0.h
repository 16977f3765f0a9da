// Q8_0: 32 signed codes of eight bits and a factor.
#pragma once
#include "format.h"

namespace LS_ISA {

struct Q8_0 {
    static constexpr int TYPE = 8, K = 32, BYTES = 34, BITS = 8, SUB = 32, OFFSET = SIGNED_SHIFT;
    static constexpr bool MINIMA = false;

    struct Packed {
        uint16_t d[LANES];
        uint8_t all[8 * WIDE];
    };

    LS_INLINE void pack(const uint8_t * block, int c, Packed * out) {
        memcpy(&out->d[c], block, 2);
        pack_bytes(block + 2, c, out->all);
    }
    LS_INLINE void codes(const Packed * p, int, W * w) { bytes(p->all, w); }
    LS_INLINE F factor(const Packed * p, int) { return load_f16(p->d); }
};

}  // namespace LS_ISA
