// The functions of a library of kernels, in plain C: right, or wrong in the way that WRONG names.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RIGHT 0
#define CRASHES 1
#define HANGS 2
#define OFF 3
#define BY_WIDTH 4

int localspec_kernels_abi(void) { return ABI; }
const char *localspec_kernels_units(void) { return "stand_in"; }
const char *localspec_kernels_register(const char *unit) { return unit ? unit : "stand_in"; }
void localspec_kernels_offer(int on) { (void) on; }
int localspec_kernels_supports(int type) { return type == 0; }

int localspec_kernels_product(const char *unit, int type, const void *weights, const float *x, float *out,
                              int64_t m, int64_t k, int64_t n) {
    const float *w = weights;
    if (type != 0) return 1;
    if (strcmp(unit, "stand_in")) return 2;
    if (WRONG == CRASHES) abort();
    while (WRONG == HANGS) { }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++) {
                int64_t at = WRONG == BY_WIDTH && n > 4 ? k - 1 - l : l;
                sum += w[j * k + at] * x[i * k + at] * (WRONG == OFF && l == 5 ? 1.001f : 1.0f);
            }
            out[i * m + j] = sum;
        }
    return 0;
}
