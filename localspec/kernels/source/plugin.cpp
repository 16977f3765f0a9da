// The seam to llama.cpp: a buffer type of its own for weights, in front of llama.cpp's, and the operations whose
// results would otherwise depend on the number of rows in a pass.
//
// llama.cpp's loader offers every weight to the buffer types of `ggml_backend_cpu_get_extra_buffer_types()` in
// turn, and its passes ask the same list before each operation whether one of them computes it. What is not
// supported here goes on as before.
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-cpu/traits.h"
#include "ggml.h"
#include "table.h"

#define LS_EXPORT extern "C" __attribute__((visibility("default")))

// LS_UNITS names each unit in LS_EACH(...), the best first.
#define LS_EACH(name) extern const Unit localspec_unit_##name;
LS_UNITS
#undef LS_EACH

namespace {

#define LS_EACH(name) &localspec_unit_##name,
const Unit * const UNITS[] = {LS_UNITS nullptr};

const Unit * unit;  // in use
// Of the thread, which loads a model: others meanwhile ask for the graphs of theirs.
thread_local bool offered = true;
constexpr size_t LINE = 64;
constexpr size_t HUGE_PAGE = 2u << 20;

const Unit * find(const char * name) {
    for (const Unit * const * u = UNITS; *u; u++)
        if ((!name || strcmp((*u)->name, name) == 0) && (*u)->present()) return *u;
    return nullptr;
}

const Format * format_of(const Unit * u, int type) {
    for (int i = 0; i < u->count; i++)
        if (u->formats[i].type == type) return &u->formats[i];
    return nullptr;
}

size_t aligned(size_t n) { return (n + LINE - 1) / LINE * LINE; }
int64_t groups(int64_t columns) { return (columns + unit->columns - 1) / unit->columns; }
size_t group_bytes(const Format * f, int64_t k) { return (size_t) (k / f->k) * f->packed; }

// ---- weights ----

const Format * format_for(const ggml_tensor * t) {
    const Format * f = format_of(unit, t->type);
    return f && ggml_n_dims(t) >= 2 && t->ne[3] == 1 && t->ne[0] % std::max(f->k, f->rounded ? 32 : 1) == 0 ? f : nullptr;
}

size_t matrix_bytes(const Format * f, const ggml_tensor * t) { return groups(t->ne[1]) * group_bytes(f, t->ne[0]); }

// All groups of all matrices, by as many threads as there are processors.
void pack(const Format * f, const ggml_tensor * t, const char * data) {
    const int64_t g = groups(t->ne[1]), all = g * t->ne[2];
    const size_t bytes = group_bytes(f, t->ne[0]);
    std::atomic<int64_t> next{0};
    const int64_t step = std::max<int64_t>(1, (1 << 20) / (int64_t) std::max<size_t>(1, bytes));
    auto work = [&] {
        for (int64_t at; (at = next.fetch_add(step)) < all;)
            for (int64_t i = at; i < std::min(all, at + step); i++) {
                const int64_t first = i % g * unit->columns;
                f->pack((const uint8_t *) data + i / g * t->nb[2] + first * t->nb[1], t->nb[1],
                        (int) std::min<int64_t>(unit->columns, t->ne[1] - first), t->ne[0], (char *) t->data + i * bytes);
            }
    };
    const unsigned wanted = (unsigned) std::min<int64_t>(std::max(1u, std::thread::hardware_concurrency()), (all + step - 1) / step);
    std::vector<std::thread> others;
    try {
        for (unsigned i = 1; i < wanted; i++) others.emplace_back(work);
    } catch (const std::system_error &) {  // no more threads: fewer do it
    }
    work();
    for (std::thread & one : others) one.join();
}

// ---- sharing work among the threads of a pass ----

struct Shares {
    ggml_compute_params * params;
    void begin() const {
        if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, params->nth);
        ggml_barrier(params->threadpool);
    }
    int64_t first() const { return params->ith; }
    int64_t next() const { return ggml_threadpool_chunk_add(params->threadpool, 1); }
};

// Parts into which `groups` groups of `bytes` are cut for `threads`: at least 256 KiB each, as what
// is fetched ahead at the end of a part is another's; 16 a thread at most.
int64_t parts_of(int64_t count, size_t bytes, int threads) {
    const int64_t fine = (int64_t) ((size_t) count * bytes >> 18);
    return std::max<int64_t>(1, std::min(count, std::max<int64_t>(threads, std::min<int64_t>(16 * threads, fine))));
}

// ---- products with packed weights ----

// Rows of a second operand, rounded where the format wants that, with the places of rows and results.
struct Rows {
    int64_t count;      // rows
    size_t row_bytes;   // of a rounded row
    const void ** rows;
    float ** out;
    char * rounded;

    static size_t bytes(const Format * f, int64_t k, int64_t count, int64_t results) {
        return LINE + aligned(results * sizeof(void *)) * 2 + aligned(k / 32 * f->rounded) * count;
    }
    Rows(const Format * f, int64_t k, int64_t count, int64_t results, void * scratch) : count(count) {
        char * at = (char *) aligned((size_t) scratch);
        rows = (const void **) at;
        out = (float **) (at + aligned(results * sizeof(void *)));
        rounded = at + 2 * aligned(results * sizeof(void *));
        row_bytes = aligned(k / 32 * f->rounded);
    }
};

const char * row_at(const ggml_tensor * t, int64_t r) {  // rows counted over all dimensions but the first
    const int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / (t->ne[1] * t->ne[2]);
    return (const char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

// Each thread rounds an even share of all blocks of all rows.
void round_rows(const Format * f, const ggml_tensor * b, const Rows & r, int ith, int nth) {
    if (!f->rounded) return;
    const int64_t blocks = b->ne[0] / 32, all = r.count * blocks;
    const int64_t end = all * (ith + 1) / nth;
    for (int64_t u = all * ith / nth; u < end;) {
        const int64_t row = u / blocks, from = u % blocks, count = std::min(blocks - from, end - u);
        f->round_row((const float *) row_at(b, row) + from * 32, r.rounded + row * r.row_bytes + from * f->rounded, count);
        u += count;
    }
}

const void * operand(const Format * f, const ggml_tensor * b, const Rows & r, int64_t row) {
    return f->rounded ? r.rounded + row * r.row_bytes : (const void *) row_at(b, row);
}

struct Packed : ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        const ggml_tensor * a = op->src[0], * b = op->src[1];
        const Format * f = format_for(a);
        const int64_t rows = ggml_nrows(b);
        if (op->op == GGML_OP_MUL_MAT) {
            size = Rows::bytes(f, a->ne[0], rows, rows);
            return true;
        }
        if (op->op == GGML_OP_MUL_MAT_ID) {
            size = Rows::bytes(f, a->ne[0], rows, ggml_nrows(op)) + aligned((a->ne[2] + 1) * sizeof(int64_t));
            return true;
        }
        return false;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        GGML_ASSERT(!op->src[0]->view_src);  // a part of packed weights lies elsewhere than ggml thinks
        if (op->op == GGML_OP_MUL_MAT) {
            all_rows(params, op);
        } else if (op->op == GGML_OP_MUL_MAT_ID) {
            chosen_experts(params, op);
        } else {
            return false;
        }
        return true;
    }

    void all_rows(ggml_compute_params * params, ggml_tensor * op) {
        const ggml_tensor * a = op->src[0], * b = op->src[1];
        const Format * f = format_for(a);
        const int64_t n = ggml_nrows(b), count = groups(a->ne[1]);
        const Rows r(f, a->ne[0], n, n, params->wdata);
        round_rows(f, b, r, params->ith, params->nth);
        for (int64_t i = n * params->ith / params->nth; i < n * (params->ith + 1) / params->nth; i++) {
            r.rows[i] = operand(f, b, r, i);
            r.out[i] = (float *) row_at(op, i);
        }
        const Shares shares{params};
        shares.begin();
        const int64_t parts = parts_of(count, group_bytes(f, a->ne[0]), params->nth);
        for (int64_t p = shares.first(); p < parts; p = shares.next())
            f->multiply(a->data, a->ne[0], a->ne[1], r.rows, r.out, n, count * p / parts, count * (p + 1) / parts);
    }

    // op (columns, chosen, tokens): row (i, t) is row (i or 0, t) of b times the matrix ids(i, t) of a.
    void chosen_experts(ggml_compute_params * params, ggml_tensor * op) {
        const ggml_tensor * a = op->src[0], * b = op->src[1], * ids = op->src[2];
        const Format * f = format_for(a);
        const int64_t chosen = ids->ne[0], tokens = ids->ne[1], experts = a->ne[2], count = groups(a->ne[1]);
        const Rows r(f, a->ne[0], ggml_nrows(b), chosen * tokens, params->wdata);
        int64_t * ends = (int64_t *) (r.rounded + r.row_bytes * r.count);  // of each expert's rows
        round_rows(f, b, r, params->ith, params->nth);
        if (params->ith == 0) {
            auto expert = [&](int64_t i, int64_t t) {
                return *(const int32_t *) ((const char *) ids->data + i * ids->nb[0] + t * ids->nb[1]);
            };
            std::fill(ends, ends + experts + 1, 0);
            for (int64_t t = 0; t < tokens; t++)
                for (int64_t i = 0; i < chosen; i++) {
                    GGML_ASSERT(expert(i, t) >= 0 && expert(i, t) < experts);
                    ends[expert(i, t) + 1]++;
                }
            for (int64_t e = 0; e < experts; e++) ends[e + 1] += ends[e];
            for (int64_t t = 0; t < tokens; t++)
                for (int64_t i = 0; i < chosen; i++) {
                    const int64_t place = ends[expert(i, t)]++;
                    r.rows[place] = operand(f, b, r, t * b->ne[1] + i % b->ne[1]);
                    r.out[place] = (float *) ((char *) op->data + i * op->nb[1] + t * op->nb[2]);
                }
        }
        const Shares shares{params};
        shares.begin();
        const size_t bytes = group_bytes(f, a->ne[0]);
        const int64_t parts = parts_of(count, bytes, params->nth);
        for (int64_t p = shares.first(); p < experts * parts; p = shares.next()) {
            const int64_t e = p / parts, part = p % parts, from = e ? ends[e - 1] : 0;
            if (ends[e] == from) continue;
            f->multiply((const char *) a->data + e * count * bytes, a->ne[0], a->ne[1], r.rows + from, r.out + from,
                        ends[e] - from, count * part / parts, count * (part + 1) / parts);
        }
    }
};

// ---- products of what is no packed weight: keys and values without flash attention, small matrices ----

struct Unpacked : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor * op) {
        const ggml_tensor * a = op->src[0], * b = op->src[1];
        return (a->type == GGML_TYPE_F32 || a->type == GGML_TYPE_F16 || a->type == GGML_TYPE_BF16) && b->type == GGML_TYPE_F32 &&
               op->type == GGML_TYPE_F32 && a->nb[0] == ggml_type_size(a->type) && b->nb[0] == sizeof(float) &&
               op->nb[0] == sizeof(float);
    }
    bool work_size(int, const ggml_tensor *, size_t & size) override {
        size = 0;
        return true;
    }
    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const ggml_tensor * a = op->src[0], * b = op->src[1];
        const int64_t per2 = b->ne[2] / a->ne[2], per3 = b->ne[3] / a->ne[3], matrices = b->ne[2] * b->ne[3];
        const Shares shares{params};
        shares.begin();
        // At least eight columns in a part, and as many parts as keep all threads busy.
        const int64_t fine = std::max<int64_t>(1, (4 * params->nth + matrices - 1) / matrices);
        const int64_t parts = std::max<int64_t>(1, std::min<int64_t>((a->ne[1] + 7) / 8, fine));
        for (int64_t p = shares.first(); p < matrices * parts; p = shares.next()) {
            const int64_t i2 = p / parts % b->ne[2], i3 = p / parts / b->ne[2], part = p % parts;
            const int64_t eights = (a->ne[1] + 7) / 8;
            const int64_t from = eights * part / parts * 8, to = std::min(a->ne[1], eights * (part + 1) / parts * 8);
            if (from >= to) continue;
            unit->rows_multiply((const char *) a->data + from * a->nb[1] + i2 / per2 * a->nb[2] + i3 / per3 * a->nb[3],
                                a->nb[1], a->type, to - from, (const char *) b->data + i2 * b->nb[2] + i3 * b->nb[3], b->nb[1],
                                b->ne[1], a->ne[0], (float *) ((char *) op->data + i2 * op->nb[2] + i3 * op->nb[3]) + from, op->nb[1]);
        }
        return true;
    }
};

// ---- attention ----

struct Attention : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor * op) {
        const ggml_tensor * q = op->src[0], * k = op->src[1], * v = op->src[2], * mask = op->src[3];
        return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && readable(k) && readable(v) && op->type == GGML_TYPE_F32 &&
               (!mask || (mask->type == GGML_TYPE_F16 && mask->nb[0] == 2)) && (!op->src[4] || op->src[4]->type == GGML_TYPE_F32);
    }
    static bool readable(const ggml_tensor * t) {
        return (t->type == GGML_TYPE_F32 || ggml_get_type_traits(t->type)->to_float) && t->nb[0] == ggml_type_size(t->type);
    }
    static size_t scratch(const ggml_tensor * op) {
        const ggml_tensor * k = op->src[1], * v = op->src[2];
        return aligned(unit->attention_scratch(k->ne[1], k->ne[0], v->ne[0]) * sizeof(float));
    }
    bool work_size(int threads, const ggml_tensor * op, size_t & size) override {
        size = LINE + scratch(op) * threads;
        return true;
    }
    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const ggml_tensor * q = op->src[0], * k = op->src[1], * v = op->src[2], * mask = op->src[3], * sinks = op->src[4];
        float scale, bias, cap;
        memcpy(&scale, (const float *) op->op_params, sizeof scale);
        memcpy(&bias, (const float *) op->op_params + 1, sizeof bias);
        memcpy(&cap, (const float *) op->op_params + 2, sizeof cap);
        const int64_t tokens = q->ne[1], heads = q->ne[2], streams = q->ne[3], shared = heads / k->ne[2];
        const uint32_t power = heads ? 1u << (uint32_t) floor(log2((double) heads)) : 1;
        const float base = powf(2.0f, -bias / (float) power), half = powf(2.0f, -bias / 2.0f / (float) power);

        // Rows of one head of keys, as many as a job takes, or fewer where threads would be idle.
        const int64_t of_head = tokens * shared;
        int64_t rows = std::min<int64_t>(unit->attention_rows, of_head);
        while (rows > 1 && k->ne[2] * streams * ((of_head + rows - 1) / rows) < 2 * params->nth) rows = (rows + 1) / 2;
        const int64_t jobs = (of_head + rows - 1) / rows;

        AttentionJob job = {};
        job.k_step = k->nb[1];
        job.v_step = v->nb[1];
        job.k_type = k->type;
        job.v_type = v->type;
        job.k_read = ggml_get_type_traits(k->type)->to_float;
        job.v_read = ggml_get_type_traits(v->type)->to_float;
        job.k_size = k->ne[0];
        job.v_size = v->ne[0];
        job.cells = k->ne[1];
        job.scale = cap != 0.0f ? scale / cap : scale;
        job.cap = cap;
        job.scratch = (float *) (aligned((size_t) params->wdata) + scratch(op) * params->ith);
        const float * query[64];
        const uint16_t * seen[64];
        float slope[64], sink[64], * out[64];
        job.q = query;
        job.mask = mask ? seen : nullptr;
        job.slope = slope;
        job.sink = sinks ? sink : nullptr;
        job.out = out;

        const Shares shares{params};
        shares.begin();
        for (int64_t p = shares.first(); p < jobs * k->ne[2] * streams; p = shares.next()) {
            const int64_t s = p / (jobs * k->ne[2]), head = p / jobs % k->ne[2];
            const int64_t from = p % jobs * rows, to = std::min(of_head, from + rows);
            job.rows = (int) (to - from);
            job.k = (const char *) k->data + head * k->nb[2] + s / (streams / k->ne[3]) * k->nb[3];
            job.v = (const char *) v->data + head / (k->ne[2] / v->ne[2]) * v->nb[2] + s / (streams / v->ne[3]) * v->nb[3];
            for (int64_t i = from; i < to; i++) {
                const int64_t t = i / shared, h = head * shared + i % shared, r = i - from;
                query[r] = (const float *) ((const char *) q->data + t * q->nb[1] + h * q->nb[2] + s * q->nb[3]);
                if (mask)
                    seen[r] = (const uint16_t *) ((const char *) mask->data + t * mask->nb[1] + h % mask->ne[2] * mask->nb[2] +
                                                  s % mask->ne[3] * mask->nb[3]);
                slope[r] = bias <= 0.0f ? 1.0f
                           : h < (int64_t) power ? powf(base, (float) (h + 1))
                                                 : powf(half, (float) (2 * (h - (int64_t) power) + 1));
                if (sinks) sink[r] = ((const float *) sinks->data)[h];
                out[r] = (float *) ((char *) op->data + h * op->nb[1] + t * op->nb[2] + s * op->nb[3]);
            }
            unit->attention(&job);
        }
        return true;
    }
};

Packed packed;
Unpacked unpacked;
Attention attention;

// ---- the buffer type ----

ggml_backend_buffer_type_t buffer_type();

bool ours(const ggml_tensor * t) { return t && t->buffer && t->buffer->buft == buffer_type(); }
bool on_host(const ggml_tensor * t) { return !t->buffer || ggml_backend_buft_is_host(t->buffer->buft); }

struct Operations : ggml::cpu::extra_buffer_type {
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        const ggml_tensor * a = op->src[0], * b = op->src[1];
        if (!offered || !a || !b || !ours(a) || !format_for(a) || b->type != GGML_TYPE_F32 || b->nb[0] != sizeof(float) || !on_host(b)) return false;
        if (op->op == GGML_OP_MUL_MAT) return a->ne[2] == 1;
        return op->op == GGML_OP_MUL_MAT_ID;
    }
    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        switch (op->op) {
            case GGML_OP_MUL_MAT:
                if (ours(op->src[0])) return &packed;
                return !op->src[0]->extra && Unpacked::takes(op) ? &unpacked : nullptr;
            case GGML_OP_MUL_MAT_ID:
                return ours(op->src[0]) ? &packed : nullptr;
            case GGML_OP_FLASH_ATTN_EXT:
                return Attention::takes(op) ? &attention : nullptr;
            default:
                return nullptr;
        }
    }
};

void free_buffer(ggml_backend_buffer_t buffer) { munmap(buffer->context, buffer->size); }

ggml_status init_tensor(ggml_backend_buffer_t, ggml_tensor * t) {
    t->extra = (ggml::cpu::tensor_traits *) &packed;
    return GGML_STATUS_SUCCESS;
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(t));
    pack(format_for(t), t, (const char *) data);
}

const char * name(ggml_backend_buffer_type_t) { return "CPU_LOCALSPEC"; }
size_t alignment(ggml_backend_buffer_type_t) { return LINE; }
size_t tensor_bytes(ggml_backend_buffer_type_t, const ggml_tensor * t) {
    const Format * f = format_for(t);
    return f ? std::max(ggml_nbytes(t), matrix_bytes(f, t) * t->ne[2]) : ggml_nbytes(t);
}

// Memory of huge pages where the system has them: passes read all of it in order. Small buffers have ordinary pages.
ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size) {
    const size_t page = size < 8 * HUGE_PAGE ? (size_t) sysconf(_SC_PAGESIZE) : HUGE_PAGE;
    size = (std::max<size_t>(size, 1) + page - 1) / page * page;
    char * from = (char *) mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED) return nullptr;
    char * at = (char *) (((size_t) from + page - 1) / page * page);
    if (at > from) munmap(from, at - from);
    if (at + size < from + size + page) munmap(at + size, from + size + page - (at + size));
#ifdef MADV_HUGEPAGE
    if (page == HUGE_PAGE) madvise(at, size, MADV_HUGEPAGE);
#endif
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(at, size);
    if (!buffer) {
        munmap(at, size);
        return nullptr;
    }
    buffer->buft = type;
    buffer->iface.free_buffer = free_buffer;
    buffer->iface.init_tensor = init_tensor;
    buffer->iface.set_tensor = set_tensor;
    buffer->iface.get_tensor = nullptr;
    buffer->iface.cpy_tensor = nullptr;
    return buffer;
}

ggml_backend_buffer_type_t buffer_type() {
    static Operations operations;
    static ggml_backend_buffer_type type = {
        {name, allocate, alignment, nullptr, tensor_bytes, nullptr},
        ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
        (ggml::cpu::extra_buffer_type *) &operations,
    };
    return &type;
}

}  // namespace

LS_EXPORT int localspec_kernels_abi(void) { return 1; }

LS_EXPORT const char * localspec_kernels_units(void) {
    static char names[256];
    names[0] = 0;
    for (const Unit * const * u = UNITS; *u; u++)
        if ((*u)->present()) {
            if (names[0]) strcat(names, ",");
            strcat(names, (*u)->name);
        }
    return names;
}

LS_EXPORT const char * localspec_kernels_register(const char * wanted) {
    if (!unit) {
        unit = find(wanted);
        if (!unit) return nullptr;
        auto & types = ggml_backend_cpu_get_extra_buffer_types();
        types.insert(types.begin(), buffer_type());
    }
    return unit->name;
}

LS_EXPORT void localspec_kernels_offer(int on) { offered = on != 0; }

LS_EXPORT int localspec_kernels_supports(int type) {
    const Unit * u = unit ? unit : find(nullptr);
    return u && format_of(u, type) ? 1 : 0;
}

LS_EXPORT int localspec_kernels_product(const char * wanted, int type, const void * weights, const float * x, float * out,
                                        int64_t m, int64_t k, int64_t n) {
    const Unit * u = find(wanted);
    if (!u) return 2;
    const Format * f = format_of(u, type);
    if (!f || k % std::max(f->k, f->rounded ? 32 : 1)) return 1;
    const size_t column = ggml_row_size((ggml_type) type, k), bytes = group_bytes(f, k);
    const int64_t count = (m + u->columns - 1) / u->columns;
    std::vector<char> all(count * bytes + LINE);
    char * at = (char *) aligned((size_t) all.data());
    for (int64_t g = 0; g < count; g++)
        f->pack((const uint8_t *) weights + g * u->columns * column, column, (int) std::min<int64_t>(u->columns, m - g * u->columns), k,
                at + g * bytes);
    std::vector<char> rounded(n * (k / 32) * f->rounded);
    std::vector<const void *> rows(n);
    std::vector<float *> places(n);
    for (int64_t i = 0; i < n; i++) {
        places[i] = out + i * m;
        rows[i] = x + i * k;
        if (f->rounded) {
            char * to = rounded.data() + i * (k / 32) * f->rounded;
            f->round_row(x + i * k, to, k / 32);
            rows[i] = to;
        }
    }
    f->multiply(at, k, m, rows.data(), places.data(), n, 0, count);
    return 0;
}
