// ARMv8.2 with dot products of bytes: 8 columns side by side, in two registers of 128 bits.
#pragma once
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

#ifndef LS_ISA
#define LS_ISA neon
#endif
#define LS_INLINE static inline __attribute__((always_inline))

namespace LS_ISA {

constexpr int LANES = 8;
constexpr int SPAN = 1;  // structures of columns in a group
template <int BITS> constexpr int together() { return 1; }  // rows whose products are computed in turns
constexpr int ROWS = 8;
constexpr int DENSE_ROWS = 4;
constexpr int SIGNED_SHIFT = 0;  // all codes fit into signed bytes, which sdot wants

struct F { float32x4_t a, b; };
struct I { int32x4_t a, b; };
struct W { uint8x16_t a, b; };  // 4 codes of each of 8 columns

#if defined(__APPLE__)
LS_INLINE bool says(const char * feature) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value == 1;
}
#endif

LS_INLINE bool present() {
#if defined(__APPLE__)
#ifdef LS_PAIRS
    if (!says("hw.optional.arm.FEAT_I8MM")) return false;
#endif
    return says("hw.optional.arm.FEAT_DotProd");
#elif defined(__linux__)
    // The bits of <asm/hwcap.h>, which older systems do not name: ASIMDDP, and I8MM of the second word.
#ifdef LS_PAIRS
    if (!(getauxval(AT_HWCAP2) & (1ul << 13))) return false;
#endif
    return (getauxval(AT_HWCAP) & (1ul << 20)) != 0;
#else
    return false;
#endif
}

LS_INLINE F zero() { return {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)}; }
LS_INLINE F all(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
LS_INLINE F load(const float * p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
LS_INLINE void store(float * p, F x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
}
LS_INLINE F add(F a, F b) { return {vaddq_f32(a.a, b.a), vaddq_f32(a.b, b.b)}; }
LS_INLINE F sub(F a, F b) { return {vsubq_f32(a.a, b.a), vsubq_f32(a.b, b.b)}; }
LS_INLINE F mul(F a, F b) { return {vmulq_f32(a.a, b.a), vmulq_f32(a.b, b.b)}; }
// NaN where the second is NaN.
LS_INLINE F larger(F a, F b) { return {vmaxq_f32(a.a, b.a), vmaxq_f32(a.b, b.b)}; }
LS_INLINE F fma(F a, F b, F c) { return {vfmaq_f32(c.a, a.a, b.a), vfmaq_f32(c.b, a.b, b.b)}; }
LS_INLINE F fnma(F a, F b, F c) { return {vfmsq_f32(c.a, a.a, b.a), vfmsq_f32(c.b, a.b, b.b)}; }
LS_INLINE F rounded(F x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
LS_INLINE F magnitude(F x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
LS_INLINE I to_int(F x) { return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b)}; }
LS_INLINE F to_float(I x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
LS_INLINE F bits_to_float(I x) { return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)}; }
LS_INLINE I all_int(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
LS_INLINE I add_int(I a, I b) { return {vaddq_s32(a.a, b.a), vaddq_s32(a.b, b.b)}; }
LS_INLINE I and_int(I a, I b) { return {vandq_s32(a.a, b.a), vandq_s32(a.b, b.b)}; }
LS_INLINE I or_int(I a, I b) { return {vorrq_s32(a.a, b.a), vorrq_s32(a.b, b.b)}; }
template <int N> LS_INLINE I left(I a) { return {vshlq_n_s32(a.a, N), vshlq_n_s32(a.b, N)}; }
LS_INLINE int32x4_t right(int32x4_t x, int n) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-n)));
}
LS_INLINE I right(I a, int n) { return {right(a.a, n), right(a.b, n)}; }
LS_INLINE F load_f16(const uint16_t * p) {
    const float16x8_t x = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
}
LS_INLINE F load_bf16(const uint16_t * p) {
    const uint16x8_t x = vld1q_u16(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(x, 16))};
}
LS_INLINE I load_bytes(const uint8_t * p) {
    const uint16x8_t x = vmovl_u8(vld1_u8(p));
    return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(x))), vreinterpretq_s32_u32(vmovl_high_u16(x))};
}
LS_INLINE I load_signed_bytes(const int8_t * p) {
    const int16x8_t x = vmovl_s8(vld1_s8(p));
    return {vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)};
}
LS_INLINE void store_bytes(int8_t * p, I x) { vst1_s8(p, vqmovn_s16(vcombine_s16(vqmovn_s32(x.a), vqmovn_s32(x.b)))); }

// Codes.
LS_INLINE W load_codes(const uint8_t * p) { return {vld1q_u8(p), vld1q_u8(p + 16)}; }
LS_INLINE W codes_and(W a, uint8_t mask) { return {vandq_u8(a.a, vdupq_n_u8(mask)), vandq_u8(a.b, vdupq_n_u8(mask))}; }
LS_INLINE W codes_or(W a, W b) { return {vorrq_u8(a.a, b.a), vorrq_u8(a.b, b.b)}; }
template <int N> LS_INLINE W codes_right(W a, uint8_t mask) {
    const W x = {vshrq_n_u8(a.a, N), vshrq_n_u8(a.b, N)};
    return mask == 255 >> N ? x : codes_and(x, mask);
}
template <int N> LS_INLINE W codes_left(W a, uint8_t mask) {
    return codes_and({vshlq_n_u8(a.a, N), vshlq_n_u8(a.b, N)}, mask);
}
LS_INLINE W look_up(const int8_t * table, W codes) {
    const uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(table));
    return {vqtbl1q_u8(t, codes.a), vqtbl1q_u8(t, codes.b)};
}
LS_INLINE W load_signed(const uint8_t * p) { return load_codes(p); }

// Four groups of codes and 16 numbers.
LS_INLINE int32x4_t dot16(int32x4_t sum, uint8x16_t w0, uint8x16_t w1, uint8x16_t w2, uint8x16_t w3, int8x16_t x) {
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w0), x, 0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w1), x, 1);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w2), x, 2);
    return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w3), x, 3);
}

// start + the sum over 4 * N codes of each column and as many numbers; all bits of the codes are exact.
template <int BITS, int N> LS_INLINE I dot(const W * w, const int8_t * a, int32_t start) {
    I total = all_int(start);
#pragma GCC unroll 2
    for (int g = 0; g < N; g += 4) {
        const int8x16_t x = vld1q_s8(a + 4 * g);
        total.a = dot16(total.a, w[g].a, w[g + 1].a, w[g + 2].a, w[g + 3].a, x);
        total.b = dot16(total.b, w[g].b, w[g + 1].b, w[g + 2].b, w[g + 3].b, x);
    }
    return total;
}

#ifdef LS_PAIRS
// Pairs of columns, eight codes of each in one register, as smmla wants them.
LS_INLINE W first_pairs(W a, W b) {  // columns 0 and 1, 4 and 5
    return {vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a.a), vreinterpretq_u32_u8(b.a))),
            vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a.b), vreinterpretq_u32_u8(b.b)))};
}
LS_INLINE W second_pairs(W a, W b) {  // columns 2 and 3, 6 and 7
    return {vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a.a), vreinterpretq_u32_u8(b.a))),
            vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a.b), vreinterpretq_u32_u8(b.b)))};
}
LS_INLINE void in_pairs(const W * w, W * pairs) {
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) {
        pairs[g] = first_pairs(w[g], w[g + 1]);
        pairs[g + 1] = second_pairs(w[g], w[g + 1]);
    }
}
LS_INLINE int32x4_t half(int32x4_t low, int32x4_t high, bool second) {
    const int64x2_t a = vreinterpretq_s64_s32(low), b = vreinterpretq_s64_s32(high);
    return vreinterpretq_s32_s64(second ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
}

// `dot` of two rows at once, from codes in pairs: the same integers.
template <int N> LS_INLINE void dot_two(const W * pairs, const int8_t * a, const int8_t * b, int32_t a_start, int32_t b_start,
                                        I * out) {
    const int32x4_t start = vcombine_s32(vdup_n_s32(a_start), vdup_n_s32(b_start));
    int32x4_t c01 = start, c23 = start, c45 = start, c67 = start;  // two sums of one row, two of the other
#pragma GCC unroll 4
    for (int g = 0; g < N; g += 2) {
        const int8x16_t x = vcombine_s8(vld1_s8(a + 4 * g), vld1_s8(b + 4 * g));
        c01 = vmmlaq_s32(c01, x, vreinterpretq_s8_u8(pairs[g].a));
        c23 = vmmlaq_s32(c23, x, vreinterpretq_s8_u8(pairs[g + 1].a));
        c45 = vmmlaq_s32(c45, x, vreinterpretq_s8_u8(pairs[g].b));
        c67 = vmmlaq_s32(c67, x, vreinterpretq_s8_u8(pairs[g + 1].b));
    }
    out[0] = {half(c01, c23, false), half(c45, c67, false)};
    out[1] = {half(c01, c23, true), half(c45, c67, true)};
}
#endif

LS_INLINE float sum(F x) { return vaddvq_f32(vaddq_f32(x.a, x.b)); }
// The sums of eight registers.
LS_INLINE float32x4_t four_sums(const F * x) {
    const float32x4_t low = vpaddq_f32(vaddq_f32(x[0].a, x[0].b), vaddq_f32(x[1].a, x[1].b));
    return vpaddq_f32(low, vpaddq_f32(vaddq_f32(x[2].a, x[2].b), vaddq_f32(x[3].a, x[3].b)));
}
LS_INLINE void sums(const F * x, float * out) { store(out, {four_sums(x), four_sums(x + 4)}); }
LS_INLINE float32x4_t zero_below(float32x4_t p, float32x4_t x, float bound) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), vcltq_f32(x, vdupq_n_f32(bound))));  // p where x is NaN
}
LS_INLINE F zero_below(F p, F x, float bound) { return {zero_below(p.a, x.a, bound), zero_below(p.b, x.b, bound)}; }
LS_INLINE int32_t sum_int(I x) { return vaddvq_s32(vaddq_s32(x.a, x.b)); }
LS_INLINE float largest(F x) { return vmaxvq_f32(vmaxq_f32(x.a, x.b)); }

}  // namespace LS_ISA
