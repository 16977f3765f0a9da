/* Rows of logits to distributions and draws, in about the time that reading a row takes.
 *
 * localspec/core/logits.py and noise.py are the reference, and do the same where this library was not
 * compiled; tests compare the two. exp and log are those of libm, whose last bit numpy's may lack.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define NOT_NUMBERS (-1)
#define NOTHING 1e-300 /* weights below this are left out */
#define MOST 256     /* candidates at most */
#define LANES 16     /* logits that are compared at once */
#define SMALL 128    /* logits of which the largest of each lane is kept, in short rows */
#define CHUNK 1024   /* the same in long rows */
#define CHUNKS 512   /* at most; what is beyond is looked at logit by logit */
#define GROUPS 256   /* lanes of chunks, whose maxima give a first bound */
#define STEP 64      /* logits that are compared with the bound at once */

typedef struct {
    float value;
    int32_t id;
} candidate;

/* Larger values first; of equals, the smaller id. */
static inline int before(candidate a, candidate b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

/* Moves the k best of n to the front, in any order (Hoare 1961, algorithm 65). */
static void best_first(candidate *c, int n, int k) {
    int low = 0, high = n - 1;
    while (low < high) {
        candidate pivot = c[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (before(c[i], pivot)) i++;
            while (before(pivot, c[j])) j--;
            if (i <= j) {
                candidate swapped = c[i];
                c[i++] = c[j];
                c[j--] = swapped;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
}

static float smallest(const candidate *c, int n) {
    float found = c[0].value;
    for (int i = 1; i < n; i++)
        if (c[i].value < found) found = c[i].value;
    return found;
}

#if defined(__SSE2__)
/* `lane_maxima` for processors that have AVX2, which all of the last ten years do. */
__attribute__((target("avx2"))) static int lane_maxima_avx2(const float *x, int size,
                                                            float *maxima) {
    const __m256 endless = _mm256_set1_ps(INFINITY);
    __m256 low = _mm256_loadu_ps(x), high = _mm256_loadu_ps(x + 8);
    __m256 finite = _mm256_and_ps(_mm256_cmp_ps(low, endless, _CMP_LT_OQ),
                                  _mm256_cmp_ps(high, endless, _CMP_LT_OQ));
    for (int i = LANES; i < size; i += LANES) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(a, endless, _CMP_LT_OQ));
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(b, endless, _CMP_LT_OQ));
        low = _mm256_max_ps(a, low);
        high = _mm256_max_ps(b, high);
    }
    _mm256_storeu_ps(maxima, low);
    _mm256_storeu_ps(maxima + 8, high);
    return _mm256_movemask_ps(finite) == 255;
}
#endif

/* The largest logit of each lane of a chunk. Returns 0 where one is NaN or +inf. */
static int lane_maxima(const float *x, int size, float *maxima) {
#if defined(__SSE2__)
    const __m128 endless = _mm_set1_ps(INFINITY);
    __m128 most[4], finite = _mm_castsi128_ps(_mm_set1_epi32(-1));
    for (int v = 0; v < 4; v++) {
        most[v] = _mm_loadu_ps(x + 4 * v);
        finite = _mm_and_ps(finite, _mm_cmplt_ps(most[v], endless));
    }
    for (int i = LANES; i < size; i += LANES)
        for (int v = 0; v < 4; v++) {
            __m128 next = _mm_loadu_ps(x + i + 4 * v);
            finite = _mm_and_ps(finite, _mm_cmplt_ps(next, endless));
            most[v] = _mm_max_ps(next, most[v]);
        }
    for (int v = 0; v < 4; v++) _mm_storeu_ps(maxima + 4 * v, most[v]);
    return _mm_movemask_ps(finite) == 15;
#elif defined(__ARM_NEON) && defined(__aarch64__)
    const float32x4_t endless = vdupq_n_f32(INFINITY);
    float32x4_t most[4];
    uint32x4_t finite = vdupq_n_u32(UINT32_MAX);
    for (int v = 0; v < 4; v++) {
        most[v] = vld1q_f32(x + 4 * v);
        finite = vandq_u32(finite, vcltq_f32(most[v], endless));
    }
    for (int i = LANES; i < size; i += LANES)
        for (int v = 0; v < 4; v++) {
            float32x4_t next = vld1q_f32(x + i + 4 * v);
            finite = vandq_u32(finite, vcltq_f32(next, endless));
            most[v] = vmaxq_f32(next, most[v]);
        }
    for (int v = 0; v < 4; v++) vst1q_f32(maxima + 4 * v, most[v]);
    return vminvq_u32(finite) == UINT32_MAX;
#else
    int finite = 1;
    for (int j = 0; j < LANES; j++) maxima[j] = -INFINITY;
    for (int i = 0; i < size; i += LANES)
        for (int j = 0; j < LANES; j++) {
            finite &= x[i + j] < INFINITY;
            maxima[j] = x[i + j] > maxima[j] ? x[i + j] : maxima[j];
        }
    return finite;
#endif
}

/* Whether one of STEP logits reaches the bound. */
static inline int any_reaches(const float *x, float bound) {
#if defined(__SSE2__)
    const __m128 limit = _mm_set1_ps(bound);
    __m128 found = _mm_cmpge_ps(_mm_loadu_ps(x), limit);
    for (int i = 4; i < STEP; i += 4)
        found = _mm_or_ps(found, _mm_cmpge_ps(_mm_loadu_ps(x + i), limit));
    return _mm_movemask_ps(found) != 0;
#else
    int found = 0;
    for (int i = 0; i < STEP; i++) found |= x[i] >= bound;
    return found;
#endif
}

typedef struct {
    int64_t chunks;
    int size; /* logits of a chunk */
    float maxima[CHUNKS * LANES];
} view;

/* Reads the row once. Returns 0 where a logit is NaN or +inf. */
static int look(view *seen, const float *row, int64_t n) {
    int finite = 1;
    int (*maxima_of)(const float *, int, float *) = lane_maxima;
#if defined(__SSE2__)
    if (__builtin_cpu_supports("avx2")) maxima_of = lane_maxima_avx2;
#endif
    int64_t size = SMALL;
    while (size < CHUNK && n / size > CHUNKS) size *= 2;
    seen->size = (int)size;
    seen->chunks = n / size < CHUNKS ? n / size : CHUNKS;
    for (int64_t c = 0; c < seen->chunks; c++)
        finite &= maxima_of(row + c * size, seen->size, seen->maxima + c * LANES);
    for (int64_t i = seen->chunks * size; i < n; i++) finite &= row[i] < INFINITY;
    return finite;
}

/* The largest logit. */
static float largest(const view *seen, const float *row, int64_t n) {
    float most = -INFINITY;
    for (int64_t i = 0; i < seen->chunks * LANES; i++)
        if (seen->maxima[i] > most) most = seen->maxima[i];
    for (int64_t i = seen->chunks * seen->size; i < n; i++)
        if (row[i] > most) most = row[i];
    return most;
}

/* A bound that at least k logits reach; -inf where there are few chunks. */
static float lower_bound(const view *seen, int k) {
    candidate group[GROUPS];
    int64_t all = seen->chunks * LANES, each = all / GROUPS;
    if (k >= GROUPS || each < 1) return -INFINITY;
    float most[GROUPS];
    memcpy(most, seen->maxima, sizeof most);
    for (int64_t i = 1; i < each; i++)
        for (int g = 0; g < GROUPS; g++) {
            float other = seen->maxima[i * GROUPS + g];
            most[g] = other > most[g] ? other : most[g];
        }
    for (int g = 0; g < GROUPS; g++) {
        group[g].value = most[g];
        group[g].id = g;
    }
    best_first(group, GROUPS, k);
    return smallest(group, k);
}

/* Whether a lane of a chunk reaches the bound. */
static int chunk_reaches(const view *seen, int64_t chunk, float bound) {
    int found = 0;
    for (int j = 0; j < LANES; j++) found |= seen->maxima[chunk * LANES + j] >= bound;
    return found;
}

/* Candidates so far, of which the k best stay. */
typedef struct {
    candidate c[4 * MOST];
    int held, k, room;
    float bound;
} best;

static void add(best *b, const float *row, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        float x = row[i];
        if (!(x >= b->bound) || x == -INFINITY) continue;
        b->c[b->held].value = x;
        b->c[b->held++].id = (int32_t)i;
        if (b->held == b->room) {
            best_first(b->c, b->held, b->k);
            b->held = b->k;
            b->bound = smallest(b->c, b->k);
        }
    }
}

/* The k largest logits of a row by ascending id, fewer where fewer are above -inf; ties at the border
 * go to the smaller id. NOT_NUMBERS where a logit is NaN or +inf. */
static int select_best(best *b, const float *row, int64_t n, int k) {
    view seen;
    if (k < 1 || k > MOST || !look(&seen, row, n)) return NOT_NUMBERS;
    b->held = 0;
    b->k = k;
    b->room = 4 * k < 64 ? 64 : 4 * k;
    b->bound = lower_bound(&seen, k);
    for (int64_t c = 0; c < seen.chunks; c++) {
        if (!chunk_reaches(&seen, c, b->bound)) continue;
        const float *maxima = seen.maxima + c * LANES, *from = row + c * seen.size;
        for (int j = 0; j < LANES; j++) {
            if (!(maxima[j] >= b->bound)) continue;
            for (int i = j; i < seen.size; i += LANES)
                if (from[i] >= b->bound) add(b, row, from - row + i, from - row + i + 1);
        }
    }
    add(b, row, seen.chunks * seen.size, n);
    if (b->held > k) {
        best_first(b->c, b->held, k);
        b->held = k;
    }
    for (int i = 1; i < b->held; i++) { /* nearly sorted */
        candidate moved = b->c[i];
        int j = i;
        for (; j > 0 && b->c[j - 1].id > moved.id; j--) b->c[j] = b->c[j - 1];
        b->c[j] = moved;
    }
    return b->held;
}

int localspec_best(const float *row, int64_t n, int k, int32_t *ids) {
    best b;
    int held = select_best(&b, row, n, k);
    for (int i = 0; i < held; i++) ids[i] = b.c[i].id;
    return held;
}

/* The sum in numpy's order (pairwise summation). */
static double sum(const double *x, int64_t n) {
    double total = 0.0;
    if (n < 8) {
        for (int64_t i = 0; i < n; i++) total += x[i];
        return total;
    }
    if (n <= 128) {
        double r[8];
        int64_t i;
        memcpy(r, x, sizeof r);
        for (i = 8; i < n - n % 8; i += 8)
            for (int j = 0; j < 8; j++) r[j] += x[i + j];
        total = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
        for (; i < n; i++) total += x[i];
        return total;
    }
    int64_t half = n / 2;
    half -= half % 8;
    return sum(x, half) + sum(x + half, n - half);
}

/* Marks what top-p keeps of candidates with these logits (maximum 0); ties go to the smaller index. */
static void nucleus(const double *logits, int n, double top_p, unsigned char *keep) {
    double weight[MOST], reached = 0.0, total = 0.0;
    int order[MOST];
    for (int i = 0; i < n; i++) {
        double w = exp(logits[i]);
        int j = i;
        for (; j > 0 && weight[j - 1] < w; j--) {
            weight[j] = weight[j - 1];
            order[j] = order[j - 1];
        }
        weight[j] = w;
        order[j] = i;
    }
    for (int i = 0; i < n; i++) total += weight[i];
    memset(keep, 0, (size_t)n);
    for (int i = 0; i < n; i++) {
        keep[order[i]] = 1;
        reached += weight[i];
        if (reached >= top_p * total) break;
    }
}

typedef struct {
    double top_p, min_p, temperature;
    int k;
} cut;

/* The distribution after top-k, top-p, min-p and temperature: ids ascending, and probabilities.
 * Returns their number, or NOT_NUMBERS. */
int localspec_distribution(const float *row, int64_t n, const cut *by, int32_t *ids,
                           double *probs) {
    best b;
    double logits[MOST];
    unsigned char keep[MOST];
    int held = select_best(&b, row, n, by->k), m = 0;
    if (held < 1) return NOT_NUMBERS;
    float top = b.c[0].value;
    for (int i = 1; i < held; i++)
        if (b.c[i].value > top) top = b.c[i].value;
    for (int i = 0; i < held; i++) logits[i] = (double)b.c[i].value - (double)top;
    memset(keep, 1, sizeof keep);
    if (by->top_p < 1.0) nucleus(logits, held, by->top_p, keep);
    double least = by->min_p > 0.0 ? log(by->min_p) : -INFINITY;
    for (int i = 0; i < held; i++) {
        if (!keep[i] || logits[i] < least) continue;
        double p = exp(logits[i] / by->temperature);
        if (p < NOTHING) continue; /* underflowed */
        ids[m] = b.c[i].id;
        probs[m++] = p;
    }
    double total = sum(probs, m);
    for (int i = 0; i < m; i++) probs[i] /= total;
    return m;
}

/* Threads of llama.cpp's last pass, which spin until they get more work: waking others would cost more
 * than they do. `GOMP_parallel` of the OpenMP library that llama.cpp computes with, and how many. */
typedef void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
static _Thread_local parallel team;
static _Thread_local unsigned members = 1;

void localspec_team(parallel with, unsigned threads) {
    team = with;
    members = with ? threads : 1;
}

/* Consecutive rows to distributions; whoever is free takes the next row. */
typedef struct {
    const float *rows;
    int64_t n;
    int count, next;
    const cut *by;
    int32_t *ids;
    double *probs;
    int32_t *held;
} row_job;

static void take_rows(void *data) {
    row_job *job = data;
    int i;
    while ((i = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->count)
        job->held[i] = localspec_distribution(job->rows + i * job->n, job->n, job->by,
                                              job->ids + i * MOST, job->probs + i * MOST);
}

/* `localspec_distribution` of consecutive rows, each with room for MOST candidates. */
void localspec_distributions(const float *rows, int64_t n, int count, const cut *by, int32_t *ids,
                             double *probs, int32_t *held) {
    row_job job = {rows, n, count, 0, by, ids, probs, held};
    if (members > 1 && count > 1)
        team(take_rows, &job, members, 0);
    else
        take_rows(&job);
}

/* sum(min(p, q^s)) for each of some exponents s, with q^s normalised. Ids ascend; q has at most MOST. */
void localspec_overlaps(const int32_t *p_ids, const double *p, int p_n, const int32_t *q_ids,
                        const double *q, int q_n, const double *exponents, int n, double *found) {
    double most = 0.0, logs[MOST], powers[MOST], same[MOST];
    for (int i = 0; i < q_n; i++) most = q[i] > most ? q[i] : most;
    for (int i = 0, j = 0; i < q_n; i++) {
        while (j < p_n && p_ids[j] < q_ids[i]) j++;
        same[i] = j < p_n && p_ids[j] == q_ids[i] ? p[j] : 0.0;
        logs[i] = log(q[i] / most);
    }
    for (int e = 0; e < n; e++) {
        double total = 0.0;
        found[e] = 0.0;
        for (int i = 0; i < q_n; i++) {
            powers[i] = exponents[e] == 1.0 ? q[i] / most : exp(exponents[e] * logs[i]);
            total += powers[i];
        }
        for (int i = 0; i < q_n; i++) {
            double power = powers[i] / total;
            found[e] += same[i] < power ? same[i] : power;
        }
    }
}

/* exp of n numbers between -700 and 0, in place: Cody and Waite's reduction and a Taylor series, in a
 * loop that compilers vectorise; within two units in the last place of libm's. */
static inline __attribute__((always_inline)) void exponentials(double *x, int n) {
    const double shift = 0x1.8p52, log2e = 0x1.71547652b82fep+0;
    const double high = 0x1.62e42fee00000p-1, low = 0x1.a39ef35793c76p-33;
    for (int i = 0; i < n; i++) {
        double k = x[i] * log2e + shift, p = 1.0 / 6227020800.0, power;
        int64_t bits;
        memcpy(&bits, &k, sizeof bits);
        bits = (bits << 52) + INT64_C(0x3FF0000000000000);
        memcpy(&power, &bits, sizeof power);
        k -= shift;
        double r = (x[i] - k * high) - k * low;
        p = p * r + 1.0 / 479001600.0;
        p = p * r + 1.0 / 39916800.0;
        p = p * r + 1.0 / 3628800.0;
        p = p * r + 1.0 / 362880.0;
        p = p * r + 1.0 / 40320.0;
        p = p * r + 1.0 / 5040.0;
        p = p * r + 1.0 / 720.0;
        p = p * r + 1.0 / 120.0;
        p = p * r + 1.0 / 24.0;
        p = p * r + 1.0 / 6.0;
        p = p * r + 0.5;
        x[i] = (p * r * r + r + 1.0) * power;
    }
}

/* Weights exp((x - top) / temperature) of a part of a row. */
static inline __attribute__((always_inline)) void part_weights(const float *row, int n, double top,
                                                               double temperature, double *weights) {
    int64_t deep = 0;
    for (int i = 0; i < n; i++) {
        weights[i] = ((double)row[i] - top) / temperature;
        deep += weights[i] < -700.0;
    }
    if (!deep)
        exponentials(weights, n);
    else
        for (int i = 0; i < n; i++) weights[i] = exp(weights[i]);
}

static void part_weights_plain(const float *row, int n, double top, double temperature,
                               double *weights) {
    part_weights(row, n, top, temperature, weights);
}
#if defined(__SSE2__)
__attribute__((target("avx2"))) static void part_weights_avx2(const float *row, int n, double top,
                                                              double temperature, double *weights) {
    part_weights(row, n, top, temperature, weights);
}
#endif

/* The distribution of a whole row at a temperature: the probability of every id, -1 where it is left
 * out. Returns how many do not; NOT_NUMBERS where a logit is NaN or +inf, or all are -inf. */
int64_t localspec_whole(const float *row, int64_t n, double temperature, double *probs) {
    view seen;
    if (!look(&seen, row, n)) return NOT_NUMBERS;
    float top = largest(&seen, row, n);
    if (top == -INFINITY) return NOT_NUMBERS;
    void (*weights_of)(const float *, int, double, double, double *) = part_weights_plain;
#if defined(__SSE2__)
    if (__builtin_cpu_supports("avx2")) weights_of = part_weights_avx2;
#endif
    for (int64_t at = 0; at < n; at += CHUNK)
        weights_of(row + at, (int)(n - at < CHUNK ? n - at : CHUNK), top, temperature, probs + at);
    double total = sum(probs, n);
    int64_t held = 0;
    for (int64_t i = 0; i < n; i++) {
        int in = probs[i] >= NOTHING;
        held += in;
        probs[i] = in ? probs[i] / total : -1.0;
    }
    return held;
}

/* Place of the first largest logit; NOT_NUMBERS where one is NaN or +inf, or all are -inf. ``mass``
 * is the sum of exp(x - largest) over the logits no further than ``reach`` below it. */
int64_t localspec_greedy(const float *row, int64_t n, float reach, double *mass) {
    view seen;
    if (!look(&seen, row, n)) return NOT_NUMBERS;
    float most = largest(&seen, row, n);
    if (most == -INFINITY) return NOT_NUMBERS;
    float low = most - reach;
    int64_t place = n;
    double total = 0.0;
    for (int64_t at = 0; at < n;) {
        int64_t chunk = at / seen.size, end = at + STEP;
        if (chunk < seen.chunks) {
            if (at % seen.size == 0 && !chunk_reaches(&seen, chunk, low)) {
                at += seen.size;
                continue;
            }
            if (!any_reaches(row + at, low)) {
                at = end;
                continue;
            }
        }
        if (end > n) end = n;
        for (; at < end; at++)
            if (row[at] >= low) {
                if (row[at] == most && at < place) place = at;
                total += exp((double)(row[at] - most));
            }
    }
    *mass = total;
    return place;
}

/* SplitMix64's finalizer, see localspec/core/noise.py. */
static uint64_t mix(uint64_t z) {
    z ^= z >> 30;
    z *= UINT64_C(0xBF58476D1CE4E5B9);
    z ^= z >> 27;
    z *= UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Index of the first argmax(log p + gumbel), with the noise of Noise.gumbel under ``key``. */
int localspec_draw(const int32_t *ids, const double *probs, int n, uint64_t key) {
    const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);
    double most = -INFINITY, reach = INFINITY;
    int at = 0;
    for (int i = 0; i < n; i++) {
        uint64_t z = mix((((uint64_t)(int64_t)ids[i] + 1) * golden) ^ key);
        double u = ((double)(mix(z + golden) >> 12) + 0.5) * 0x1p-52;
        /* The score grows as -log(u) / p falls, and -log(u) is at least 1 - u: mostly that is too
         * much already, and spares three logarithms. */
        if (1.0 - u > probs[i] * reach) continue;
        double waits = -log(u);
        double score = log(probs[i]) - log(waits);
        if (score > most) {
            most = score;
            at = i;
            reach = waits / probs[i] * (1.0 + 1e-9); /* more than all rounding */
        }
    }
    return at;
}
