// AVX-512 with VNNI: 16 columns side by side, 64 products of bytes in one instruction.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifndef LS_ISA
#define LS_ISA avx512vnni
#endif
#define LS_INLINE static inline __attribute__((always_inline))

namespace LS_ISA {

constexpr int LANES = 16;
constexpr int SPAN = 1;         // registers of columns in a group
template <int BITS> constexpr int together() { return 1; }  // rows whose products are computed in turns
constexpr int ROWS = 16;        // rows of a tile of quantized products
constexpr int DENSE_ROWS = 8;   // and of products in floating point
constexpr int SIGNED_SHIFT = 128;  // what is added to signed codes: vpdpbusd wants unsigned ones

using F = __m512;
using I = __m512i;
using W = __m512i;  // 4 codes of each of 16 columns

LS_INLINE bool present() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni")
#ifdef LS_TILES
           && tiles_permitted()
#endif
        ;
}

LS_INLINE F zero() { return _mm512_setzero_ps(); }
LS_INLINE F all(float x) { return _mm512_set1_ps(x); }
LS_INLINE F load(const float * p) { return _mm512_loadu_ps(p); }
LS_INLINE void store(float * p, F x) { _mm512_storeu_ps(p, x); }
LS_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
LS_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
LS_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
// NaN where the second is NaN.
LS_INLINE F larger(F a, F b) { return _mm512_max_ps(a, b); }
LS_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
LS_INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
LS_INLINE F rounded(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LS_INLINE F magnitude(F x) { return _mm512_abs_ps(x); }
LS_INLINE I to_int(F x) { return _mm512_cvtps_epi32(x); }
LS_INLINE F to_float(I x) { return _mm512_cvtepi32_ps(x); }
LS_INLINE F bits_to_float(I x) { return _mm512_castsi512_ps(x); }
LS_INLINE I all_int(int32_t x) { return _mm512_set1_epi32(x); }
LS_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
LS_INLINE I and_int(I a, I b) { return _mm512_and_si512(a, b); }
LS_INLINE I or_int(I a, I b) { return _mm512_or_si512(a, b); }
template <int N> LS_INLINE I left(I a) { return _mm512_slli_epi32(a, N); }
LS_INLINE I right(I a, int n) { return _mm512_srli_epi32(a, (unsigned) n); }
LS_INLINE F load_f16(const uint16_t * p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p)); }
LS_INLINE F load_bf16(const uint16_t * p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p)), 16));
}
LS_INLINE I load_bytes(const uint8_t * p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) p)); }
LS_INLINE I load_signed_bytes(const int8_t * p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) p)); }
LS_INLINE void store_bytes(int8_t * p, I x) { _mm_storeu_si128((__m128i *) p, _mm512_cvtepi32_epi8(x)); }

// Codes.
LS_INLINE W load_codes(const uint8_t * p) { return _mm512_loadu_si512(p); }
LS_INLINE W codes_and(W a, uint8_t mask) { return _mm512_and_si512(a, _mm512_set1_epi8((char) mask)); }
LS_INLINE W codes_or(W a, W b) { return _mm512_or_si512(a, b); }
template <int N> LS_INLINE W codes_right(W a, uint8_t mask) { return codes_and(_mm512_srli_epi16(a, N), mask); }
template <int N> LS_INLINE W codes_left(W a, uint8_t mask) { return codes_and(_mm512_slli_epi16(a, N), mask); }
LS_INLINE W look_up(const int8_t * table, W codes) {  // of signed codes, shifted to unsigned ones
    const W t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) table));
    return _mm512_xor_si512(_mm512_shuffle_epi8(t, codes), _mm512_set1_epi8((char) 0x80));
}
LS_INLINE W load_signed(const uint8_t * p) { return _mm512_xor_si512(load_codes(p), _mm512_set1_epi8((char) 0x80)); }

LS_INLINE I four(const int8_t * a) {
    int32_t x;
    memcpy(&x, a, 4);
    return _mm512_set1_epi32(x);
}

// start + the sum over 4 * N codes of each column and as many numbers; all bits of the codes are exact.
template <int BITS, int N> LS_INLINE I dot(const W * w, const int8_t * a, int32_t start) {
    I even = _mm512_set1_epi32(start), odd = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int g = 0; g < N; g += 2) {
        even = _mm512_dpbusd_epi32(even, w[g], four(a + 4 * g));
        odd = _mm512_dpbusd_epi32(odd, w[g + 1], four(a + 4 * g + 4));
    }
    return _mm512_add_epi32(even, odd);
}

LS_INLINE float sum(F x) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
// The sums of eight registers.
LS_INLINE __m256 folded(F x) { return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); }
LS_INLINE void sums(const F * x, float * out) {
    const __m256 a = _mm256_hadd_ps(folded(x[0]), folded(x[1])), b = _mm256_hadd_ps(folded(x[2]), folded(x[3]));
    const __m256 c = _mm256_hadd_ps(folded(x[4]), folded(x[5])), d = _mm256_hadd_ps(folded(x[6]), folded(x[7]));
    const __m256 low = _mm256_hadd_ps(a, b), high = _mm256_hadd_ps(c, d);
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)));
}
LS_INLINE F zero_below(F p, F x, float bound) {  // p where x is NaN
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(bound), _CMP_NLT_UQ), p);
}
LS_INLINE int32_t sum_int(I x) { return _mm512_reduce_add_epi32(x); }
LS_INLINE float largest(F x) { return _mm512_reduce_max_ps(x); }

}  // namespace LS_ISA
