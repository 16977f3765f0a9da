// One instruction set's kernels as a program: reads cases from standard input and writes their results, so that
// an emulator of another processor can run them. Linked with localspec/kernels/source/unit.cpp, -DUNIT=NAME.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "table.h"

#define NAMED_(x) localspec_unit_##x
#define NAMED(x) NAMED_(x)
extern const Unit NAMED(UNIT);
static const Unit & unit = NAMED(UNIT);

template <class T> static std::vector<T> take(int64_t n) {
    std::vector<T> to(n);
    if (n && fread(to.data(), sizeof(T), n, stdin) != (size_t) n) exit(0);
    return to;
}

static void give(const std::vector<float> & found) {
    fwrite(found.data(), sizeof(float), found.size(), stdout);
    fflush(stdout);
}

static void product(int type, int64_t m, int64_t k, int64_t n, int64_t bytes) {
    const std::vector<uint8_t> weights = take<uint8_t>(bytes);
    const std::vector<float> x = take<float>(n * k);
    const Format * f = unit.formats;
    while (f->type != type) f++;
    const int64_t groups = (m + unit.columns - 1) / unit.columns, column = bytes / m, group = k / f->k * f->packed;
    std::vector<uint8_t> packed(groups * group), rounded(n * (k / 32) * f->rounded);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = g * unit.columns, count = m - first < unit.columns ? m - first : unit.columns;
        f->pack(weights.data() + first * column, column, (int) count, k, packed.data() + g * group);
    }
    std::vector<float> out(n * m, NAN);
    std::vector<const void *> rows(n);
    std::vector<float *> places(n);
    for (int64_t i = 0; i < n; i++) {
        places[i] = out.data() + i * m;
        rows[i] = x.data() + i * k;
        if (!f->rounded) continue;
        uint8_t * to = rounded.data() + i * (k / 32) * f->rounded;
        f->round_row(x.data() + i * k, to, k / 32);
        rows[i] = to;
    }
    f->multiply(packed.data(), k, m, rows.data(), places.data(), n, 0, groups);
    give(out);
}

// Keys and values of float16; a mask of float16.
static void attention(int rows, int64_t cells, int64_t k_size, int64_t v_size) {
    const std::vector<float> q = take<float>(rows * k_size);
    const std::vector<uint16_t> k = take<uint16_t>(cells * k_size), v = take<uint16_t>(cells * v_size);
    const std::vector<uint16_t> mask = take<uint16_t>(rows * cells);
    std::vector<float> out(rows * v_size, NAN), slope(rows, 1.0f), scratch(unit.attention_scratch(cells, k_size, v_size));
    std::vector<const float *> q_at;
    std::vector<const uint16_t *> mask_at;
    std::vector<float *> out_at;
    for (int r = 0; r < rows; r++) {
        q_at.push_back(q.data() + r * k_size);
        mask_at.push_back(mask.data() + r * cells);
        out_at.push_back(out.data() + r * v_size);
    }
    auto read = [](const void * from, float * to, int64_t n) {  // where a cell is no whole number of registers
        const uint16_t * bits = (const uint16_t *) from;
        for (int64_t i = 0; i < n; i++) {
            const int exponent = bits[i] >> 10 & 31, fraction = bits[i] & 1023;
            const float size = exponent ? ldexpf((float) (1024 + fraction), exponent - 25) : ldexpf((float) fraction, -24);
            to[i] = bits[i] & 0x8000 ? -size : size;
        }
    };
    AttentionJob job = {};
    job.k = (const char *) k.data(), job.v = (const char *) v.data();
    job.k_step = k_size * 2, job.v_step = v_size * 2;
    job.k_type = job.v_type = 1, job.k_read = job.v_read = read;
    job.k_size = k_size, job.v_size = v_size, job.cells = cells, job.rows = rows;
    job.q = q_at.data(), job.mask = mask_at.data(), job.slope = slope.data(), job.out = out_at.data();
    job.scale = 1.0f / sqrtf((float) k_size), job.scratch = scratch.data();
    unit.attention(&job);
    give(out);
}

static void rows_multiply(int type, int64_t m, int64_t k, int64_t n, int64_t bytes) {
    const std::vector<uint8_t> a = take<uint8_t>(bytes);
    const std::vector<float> b = take<float>(n * k);
    std::vector<float> out(n * m, NAN);
    unit.rows_multiply(a.data(), bytes / m, type, m, (const char *) b.data(), k * sizeof(float), n, k, out.data(), m * sizeof(float));
    give(out);
}

int main() {
    if (!unit.present()) {
        fprintf(stderr, "%s: not on this processor\n", unit.name);
        return 1;
    }
    for (;;) {
        const std::vector<int64_t> x = take<int64_t>(6);
        if (x[0] == 0) product((int) x[1], x[2], x[3], x[4], x[5]);
        if (x[0] == 1) attention((int) x[1], x[2], x[3], x[4]);
        if (x[0] == 2) rows_multiply((int) x[1], x[2], x[3], x[4], x[5]);
    }
}
