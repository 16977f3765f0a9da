// What formats share: how codes of 32 numbers of LANES columns lie in memory.
//
// A format says how a block of a column in the file becomes codes, factors and, in some formats, minima:
//   number = factor * (code - OFFSET) - minimum
// with one factor for SUB numbers. Codes are unsigned, or signed where BITS is 8. They are stored so that a
// register holds four consecutive codes of each of LANES columns; eight such registers are 32 numbers.
#pragma once

namespace LS_ISA {

constexpr int WIDE = 4 * LANES;  // bytes of a register of codes
constexpr int COLUMNS = SPAN * LANES;  // of a group, whose blocks lie beside each other register by register

// 32 numbers of a row, rounded to 8 bits; the row's products with codes begin at `start`, which takes the
// format's OFFSET off.
struct Activation {
    int8_t q[32];
    float d;           // what a unit of q is worth
    float total;       // d * the sum of q
    int32_t start[2];  // for all 32, or for each half of them where SUB is 16
};

// 32 codes of four bits as a block of a file has them: the upper nibbles are the codes from 16 on.
LS_INLINE void halves(const uint8_t * q, uint8_t * codes) {
    for (int x = 0; x < 16; x++) {
        codes[x] = q[x] & 15;
        codes[x + 16] = q[x] >> 4;
    }
}

// The low four bits of 32 codes of column c: the upper nibbles are the codes from 16 on.
LS_INLINE void pack_nibbles(const uint8_t * codes, int c, uint8_t * out) {
    uint8_t t[16];
    for (int x = 0; x < 16; x++) t[x] = (uint8_t) ((codes[x] & 15) | (codes[x + 16] << 4));
    for (int g = 0; g < 4; g++) memcpy(out + g * WIDE + 4 * c, t + 4 * g, 4);
}

// Bit `bit` of 32 codes of column c, one bit of a byte for each of eight registers.
LS_INLINE void pack_bit(const uint8_t * codes, int bit, int c, uint8_t * out) {
    uint8_t t[4] = {0, 0, 0, 0};
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 4; i++) t[i] = (uint8_t) (t[i] | (((codes[4 * g + i] >> bit) & 1) << g));
    memcpy(out + 4 * c, t, 4);
}

// Bits 4 and 5 of 32 codes of column c, in two registers' worth of bytes.
LS_INLINE void pack_two_bits(const uint8_t * codes, int c, uint8_t * out) {
    for (int h = 0; h < 2; h++) {
        uint8_t t[4] = {0, 0, 0, 0};
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < 4; i++) t[i] = (uint8_t) (t[i] | (((codes[16 * h + 4 * g + i] >> 4) & 3) << 2 * g));
        memcpy(out + h * WIDE + 4 * c, t, 4);
    }
}

LS_INLINE void pack_bytes(const uint8_t * codes, int c, uint8_t * out) {
    for (int g = 0; g < 8; g++) memcpy(out + g * WIDE + 4 * c, codes + 4 * g, 4);
}

LS_INLINE void nibbles(const uint8_t * p, W * w) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        const W v = load_codes(p + g * WIDE);
        w[g] = codes_and(v, 15);
        w[g + 4] = codes_right<4>(v, 15);
    }
}

LS_INLINE void add_bit(const uint8_t * p, W * w) {  // as bit 4
    const W v = load_codes(p);
    w[0] = codes_or(w[0], codes_left<4>(v, 16));
    w[1] = codes_or(w[1], codes_left<3>(v, 16));
    w[2] = codes_or(w[2], codes_left<2>(v, 16));
    w[3] = codes_or(w[3], codes_left<1>(v, 16));
    w[4] = codes_or(w[4], codes_and(v, 16));
    w[5] = codes_or(w[5], codes_right<1>(v, 16));
    w[6] = codes_or(w[6], codes_right<2>(v, 16));
    w[7] = codes_or(w[7], codes_right<3>(v, 16));
}

LS_INLINE void add_two_bits(const uint8_t * p, W * w) {  // as bits 4 and 5
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const W v = load_codes(p + h * WIDE);
        w[4 * h] = codes_or(w[4 * h], codes_left<4>(v, 48));
        w[4 * h + 1] = codes_or(w[4 * h + 1], codes_left<2>(v, 48));
        w[4 * h + 2] = codes_or(w[4 * h + 2], codes_and(v, 48));
        w[4 * h + 3] = codes_or(w[4 * h + 3], codes_right<2>(v, 48));
    }
}

LS_INLINE void bytes(const uint8_t * p, W * w) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) w[g] = load_signed(p + g * WIDE);
}

// Scales and minima of six bits for eight blocks of LANES columns, as in Q4_K and Q5_K: a byte with both low
// nibbles for each block, then a byte with the upper bits of block j and j + 4.
struct SixBits {
    uint8_t low[8][LANES];
    uint8_t high[4][LANES];
};

LS_INLINE void pack_six_bits(const uint8_t * q, int c, SixBits * out) {
    uint8_t scale[8], least[8];
    for (int j = 0; j < 4; j++) {
        scale[j] = q[j] & 63;
        least[j] = q[j + 4] & 63;
        scale[j + 4] = (uint8_t) ((q[j + 8] & 15) | (q[j] >> 6 << 4));
        least[j + 4] = (uint8_t) ((q[j + 8] >> 4) | (q[j + 4] >> 6 << 4));
    }
    for (int j = 0; j < 8; j++) out->low[j][c] = (uint8_t) ((scale[j] & 15) | (least[j] << 4));
    for (int j = 0; j < 4; j++)
        out->high[j][c] = (uint8_t) (scale[j] >> 4 | least[j] >> 4 << 2 | scale[j + 4] >> 4 << 4 | least[j + 4] >> 4 << 6);
}

LS_INLINE F six_bits_scale(const SixBits * p, int j) {
    const I low = and_int(load_bytes(p->low[j]), all_int(15));
    const I high = and_int(right(load_bytes(p->high[j & 3]), j & 4), all_int(3));
    return to_float(or_int(low, left<4>(high)));
}

LS_INLINE F six_bits_minimum(const SixBits * p, int j) {
    const I low = right(load_bytes(p->low[j]), 4);
    const I high = and_int(right(load_bytes(p->high[j & 3]), (j & 4) + 2), all_int(3));
    return to_float(or_int(low, left<4>(high)));
}

}  // namespace LS_ISA
