// What the plugin calls: the functions of one instruction set. Plain data, the same for all units.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct Format {
    int type;             // ggml's number of it
    int k;                // numbers of a block of a column
    size_t packed;        // bytes of such a block of all columns of a group
    size_t rounded;       // bytes of 32 rounded numbers of a row; 0 where rows are read as they are
    void (*round_row)(const float * x, void * out, int64_t blocks_of_32);
    void (*pack)(const uint8_t * from, size_t bytes_of_a_column, int columns, int64_t k, void * to);
    void (*multiply)(const void * weights, int64_t k, int64_t columns, const void * const * rows, float * const * out,
                     int64_t n, int64_t from, int64_t to);
};

// Attention of some rows of one head of keys; see attention.h.
struct AttentionJob {
    const char * k, * v;             // of the first cell
    size_t k_step, v_step;           // bytes between cells
    int k_type, v_type;              // ggml's: F32, F16, BF16 are read here, others by the functions below
    void (*k_read)(const void * from, float * to, int64_t n);
    void (*v_read)(const void * from, float * to, int64_t n);
    int64_t k_size, v_size, cells;   // numbers of a key and a value, cells
    int rows;
    const float * const * q;         // rows
    const uint16_t * const * mask;   // rows of float16, or null
    const float * slope;             // of each row
    const float * sink;              // logits of each row's sink, or null
    float * const * out;             // rows of v_size
    float scale, cap;
    float * scratch;                 // attention_scratch(…) floats
};

struct Unit {
    const char * name;
    int columns;  // of a group
    int attention_rows;
    bool (*present)();
    const Format * formats;
    int count;
    size_t (*attention_scratch)(int64_t cells, int64_t k_size, int64_t v_size);
    void (*attention)(const AttentionJob * job);
    // (rows of a) times (rows of b), sums of k in one order: any types of a that `read` makes floats of.
    void (*rows_multiply)(const void * a, size_t a_step, int a_type, int64_t m, const char * b, size_t b_step, int64_t n,
                          int64_t k, float * out, size_t out_step);
};
