// AVX2 with the VNNI instructions of 256 bits that processors without AVX-512 have.
#pragma once
#define LS_ISA avxvnni
#define LS_AVX_VNNI
#include "avx2.h"
