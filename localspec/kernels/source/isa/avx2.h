// AVX2 with FMA and F16C: 8 columns side by side; products of bytes are added in 16 bits as far as they fit.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifndef LS_ISA
#define LS_ISA avx2
#endif
#define LS_INLINE static inline __attribute__((always_inline))

namespace LS_ISA {

constexpr int LANES = 8;
constexpr int SPAN = 2;  // registers of columns in a group: a number that was made a register serves both
constexpr int ROWS = 8;
constexpr int DENSE_ROWS = 3;
// Rows whose products are computed in turns, so that few instructions wait for the one before; measured.
template <int BITS> constexpr int together() { return BITS == 8 ? 1 : BITS == 5 ? 3 : 4; }
#ifdef LS_AVX_VNNI
constexpr int SIGNED_SHIFT = 128;
#else
constexpr int SIGNED_SHIFT = 0;
#endif

using F = __m256;
using I = __m256i;
using W = __m256i;  // 4 codes of each of 8 columns

LS_INLINE bool present() {
#ifdef LS_AVX_VNNI
    unsigned a, b, c, d;  // GCC 12 knows no name for it in __builtin_cpu_supports
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(1));
    if (!(a & (1u << 4))) return false;
#endif
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

LS_INLINE F zero() { return _mm256_setzero_ps(); }
LS_INLINE F all(float x) { return _mm256_set1_ps(x); }
LS_INLINE F load(const float * p) { return _mm256_loadu_ps(p); }
LS_INLINE void store(float * p, F x) { _mm256_storeu_ps(p, x); }
LS_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
LS_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
LS_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
// NaN where the second is NaN.
LS_INLINE F larger(F a, F b) { return _mm256_max_ps(a, b); }
LS_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
LS_INLINE F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
LS_INLINE F rounded(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LS_INLINE F magnitude(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
LS_INLINE I to_int(F x) { return _mm256_cvtps_epi32(x); }
LS_INLINE F to_float(I x) { return _mm256_cvtepi32_ps(x); }
LS_INLINE F bits_to_float(I x) { return _mm256_castsi256_ps(x); }
LS_INLINE I all_int(int32_t x) { return _mm256_set1_epi32(x); }
LS_INLINE I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
LS_INLINE I and_int(I a, I b) { return _mm256_and_si256(a, b); }
LS_INLINE I or_int(I a, I b) { return _mm256_or_si256(a, b); }
template <int N> LS_INLINE I left(I a) { return _mm256_slli_epi32(a, N); }
LS_INLINE I right(I a, int n) { return _mm256_srli_epi32(a, n); }
LS_INLINE F load_f16(const uint16_t * p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p)); }
LS_INLINE F load_bf16(const uint16_t * p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p)), 16));
}
LS_INLINE I load_bytes(const uint8_t * p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) p)); }
LS_INLINE I load_signed_bytes(const int8_t * p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) p)); }
LS_INLINE void store_bytes(int8_t * p, I x) {
    const __m128i s = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *) p, _mm_packs_epi16(s, s));
}

// Codes.
LS_INLINE W load_codes(const uint8_t * p) { return _mm256_loadu_si256((const __m256i *) p); }
LS_INLINE W codes_and(W a, uint8_t mask) { return _mm256_and_si256(a, _mm256_set1_epi8((char) mask)); }
LS_INLINE W codes_or(W a, W b) { return _mm256_or_si256(a, b); }
template <int N> LS_INLINE W codes_right(W a, uint8_t mask) { return codes_and(_mm256_srli_epi16(a, N), mask); }
template <int N> LS_INLINE W codes_left(W a, uint8_t mask) { return codes_and(_mm256_slli_epi16(a, N), mask); }
LS_INLINE W shifted(W w) {
#ifdef LS_AVX_VNNI
    return _mm256_xor_si256(w, _mm256_set1_epi8((char) 0x80));
#else
    return w;
#endif
}
LS_INLINE W look_up(const int8_t * table, W codes) {
    return shifted(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) table)), codes));
}
LS_INLINE W load_signed(const uint8_t * p) { return shifted(load_codes(p)); }

LS_INLINE I four(const int8_t * a) {
    int32_t x;
    memcpy(&x, a, 4);
    return _mm256_set1_epi32(x);
}

#define LS_DOTS
#define LS_KEEP(x) __asm__("" : "+x"(x))  // GCC would change the order, and find too few registers

#ifdef LS_AVX_VNNI
// Products of the registers from G on of codes with Q rows, added to their sums.
template <int G, int END, int Q, class A> LS_INLINE void add_products(const W (*codes)[8], const A * const * a, I (*sum)[SPAN]) {
#pragma GCC unroll 4
    for (int r = 0; r < Q; r++) {
        const I numbers = four(a[r]->q + 4 * G);
        sum[r][0] = _mm256_dpbusd_avx_epi32(sum[r][0], codes[0][G], numbers);
        sum[r][1] = _mm256_dpbusd_avx_epi32(sum[r][1], codes[1][G], numbers);
    }
    if constexpr (G + 1 < END) add_products<G + 1, END, Q>(codes, a, sum);
}

template <int BITS, int FROM, int N, int Q, class A> LS_INLINE void dots(const W (*codes)[8], const A * const * a, I (*sum)[SPAN]) {
#pragma GCC unroll 4
    for (int r = 0; r < Q; r++) sum[r][0] = sum[r][1] = all_int(a[r]->start[FROM / 4]);
    add_products<FROM, FROM + N, Q>(codes, a, sum);
}
#else
template <int BITS> LS_INLINE I products(W codes, I numbers) {  // BITS 8 means signed codes: their signs go to the numbers
    return BITS == 8 ? _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(numbers, codes))
                     : _mm256_maddubs_epi16(codes, numbers);
}

// Products of the registers from G on of codes with Q rows, added in 16 bits.
template <int BITS, int FIRST, int G, int END, int Q, class A>
LS_INLINE void add_products(const W (*codes)[8], const A * const * a, I (*part)[SPAN]) {
#pragma GCC unroll 4
    for (int r = 0; r < Q; r++) {
        const I numbers = four(a[r]->q + 4 * G);
        const I left = products<BITS>(codes[0][G], numbers), right = products<BITS>(codes[1][G], numbers);
        part[r][0] = G > FIRST ? _mm256_add_epi16(part[r][0], left) : left;
        part[r][1] = G > FIRST ? _mm256_add_epi16(part[r][1], right) : right;
        LS_KEEP(part[r][0]);
        LS_KEEP(part[r][1]);
    }
    if constexpr (G + 1 < END) add_products<BITS, FIRST, G + 1, END, Q>(codes, a, part);
}

// As many registers' products as fit into 16 bits when they are added, then the next ones.
template <int BITS, int FROM, int G, int END, int Q, class A>
LS_INLINE void add_fitting(const W (*codes)[8], const A * const * a, I (*sum)[SPAN]) {
    constexpr int FIT = BITS == 4 ? 8 : BITS == 5 ? 4 : BITS == 6 ? 2 : 1, NEXT = G + FIT < END ? G + FIT : END;
    const I ones = _mm256_set1_epi16(1);
    I part[Q][SPAN];
    add_products<BITS, G, G, NEXT, Q>(codes, a, part);
#pragma GCC unroll 4
    for (int r = 0; r < Q; r++) {
        const I start = all_int(a[r]->start[FROM / 4]);
        sum[r][0] = _mm256_add_epi32(G > FROM ? sum[r][0] : start, _mm256_madd_epi16(part[r][0], ones));
        sum[r][1] = _mm256_add_epi32(G > FROM ? sum[r][1] : start, _mm256_madd_epi16(part[r][1], ones));
    }
    if constexpr (NEXT < END) add_fitting<BITS, FROM, NEXT, END, Q>(codes, a, sum);
}

template <int BITS, int FROM, int N, int Q, class A> LS_INLINE void dots(const W (*codes)[8], const A * const * a, I (*sum)[SPAN]) {
    add_fitting<BITS, FROM, FROM, FROM + N, Q>(codes, a, sum);
}
#endif

LS_INLINE float sum(F x) {
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
// The sums of eight registers.
LS_INLINE void sums(const F * x, float * out) {
    const __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    const __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(x[4], x[5]), _mm256_hadd_ps(x[6], x[7]));
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)));
}
LS_INLINE F zero_below(F p, F x, float bound) {  // p where x is NaN
    return _mm256_and_ps(p, _mm256_cmp_ps(x, _mm256_set1_ps(bound), _CMP_NLT_UQ));
}
LS_INLINE int32_t sum_int(I x) {
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
LS_INLINE float largest(F x) {
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

}  // namespace LS_ISA
