// One instruction set: compiled once for each, with its flags.
#include LS_UNIT
#include "formats/iq4.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"
#include "products.h"
#include "attention.h"

#define LS_TEXT_(x) #x
#define LS_TEXT(x) LS_TEXT_(x)
#define LS_NAMED_(x) localspec_unit_##x
#define LS_NAMED(x) LS_NAMED_(x)

namespace LS_ISA {

static const Format FORMATS[] = {
    quantized<Q4_0>(), quantized<Q4_1>(),   quantized<Q4_K>(),   quantized<Q5_0>(),  quantized<Q5_1>(), quantized<Q5_K>(), quantized<Q6_K>(),
    quantized<Q8_0>(), quantized<IQ4_NL>(), quantized<IQ4_XS>(), quantized<MXFP4>(), dense<0, 4>(),     dense<1, 2>(),     dense<30, 2>(),
};

static bool has() { return present(); }

}  // namespace LS_ISA

extern const Unit LS_NAMED(LS_ISA);
const Unit LS_NAMED(LS_ISA) = {
    LS_TEXT(LS_ISA), LS_ISA::COLUMNS, LS_ISA::ATTENTION_ROWS, LS_ISA::has, LS_ISA::FORMATS,
    sizeof(LS_ISA::FORMATS) / sizeof(LS_ISA::FORMATS[0]), LS_ISA::attention_scratch, LS_ISA::attention, LS_ISA::rows_multiply,
};
