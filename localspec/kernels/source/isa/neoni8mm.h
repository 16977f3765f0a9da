// NEON with matrix products of bytes: one instruction has the products of two columns with two rows. A single row
// is computed as without them. (usdot gains nothing here: all codes fit into signed bytes.)
#pragma once
#define LS_ISA neoni8mm
#define LS_PAIRS
#include "neon.h"
