// AVX-512 with VNNI, and AMX's tiles for products of many rows.
#pragma once
#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define LS_ISA amx
#define LS_TILES

// Assembly, not the compiler's functions: GCC 12 declares 8 of 64 bytes as what ldtilecfg reads and none as what tileloadd
// does, and drops the stores before them.
#define LS_TILE_LOAD(tile, from, step) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((long) (step)) : "memory")
#define LS_TILE_STORE(tile, to) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"(64L) : "memory")
#define LS_TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
// sums += signed bytes of `left` times those of `right`
#define LS_TILE_MULTIPLY(sums, left, right) \
    __asm__ volatile("tdpbssd %%tmm" #right ", %%tmm" #left ", %%tmm" #sums : :)

namespace LS_ISA {

// Whether the processor and the system have tiles, and the system lets this process use them: Linux wants to be asked.
static bool tiles_permitted() {
#ifdef __linux__
    static const bool permitted = [] {
        unsigned a = 7, b, c = 0, d;
        __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        constexpr unsigned TILE = 1u << 24, INT8 = 1u << 25;
        constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
        return (d & TILE) && (d & INT8) && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
    }();
    return permitted;
#else
    return false;
#endif
}

struct alignas(64) TileShapes {
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64, "as ldtilecfg reads it");

// What is configured, all zero for no tiles. Whoever uses tiles puts it back: llama.cpp relies on what it configured for a thread. All
// zero releases them, so that switching threads costs nothing.
static inline TileShapes tiles_in_use() {
    TileShapes shapes;
    __asm__ volatile("sttilecfg %0" : "=m"(shapes) : : "memory");
    return shapes;
}
static inline void configure_tiles(const TileShapes & shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes) : "memory"); }

// Tile 0 has `rows` rows of `bytes` bytes, tiles 1 to 3 the codes of as many bytes of 16 columns, 4 to 7 their sums.
static inline TileShapes tiles_for(int rows, int bytes) {
    TileShapes shapes;
    memset(&shapes, 0, sizeof shapes);
    shapes.palette = 1;
    for (int t = 0; t < 8; t++) {
        shapes.bytes[t] = (uint16_t) (t == 0 ? bytes : 64);
        shapes.rows[t] = (uint8_t) (t == 0 || t >= 4 ? rows : bytes / 4);
    }
    return shapes;
}

}  // namespace LS_ISA

#include "avx512vnni.h"
