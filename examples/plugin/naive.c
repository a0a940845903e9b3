/* NAIVE_ATTN: dense and causal attention in float32, one query row at a time; and the platform
 * "toy", a pretended device whose tensors live in the memory of the CPU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fovea/plugin.h"

/* What run needs to know. */
typedef struct naive_plan {
  int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, dim_v;
  int causal;
  int lse;
  int single; /* sums are rounded to float32 */
  double scale;
  int32_t in_seq, in_head; /* axes of sequence and head */
  int32_t out_seq, out_head;
} naive_plan;

static void refuse(const fovea_plugin_sink* sink, const char* code, const char* field,
                   const char* got, const char* accepted) {
  fovea_plugin_reason reason;
  memset(&reason, 0, sizeof reason);
  reason.struct_size = sizeof reason;
  reason.code = code;
  reason.field = field;
  reason.got = got;
  reason.accepted = accepted;
  reason.remedy = "choose FLASH_ATTN";
  sink->add_reason(sink, &reason);
}

/* The entry's extra.NAIVE_ATTN.accumulate. The library has checked it against the option table
 * below, and writes the JSON without blanks. */
static int sums_in_single(const fovea_plugin_context* context) {
  return context->spec_json != NULL && strstr(context->spec_json, "\"accumulate\":\"f32\"") != NULL;
}

static int32_t resolve(void* self, const fovea_plugin_problem* p,
                       const fovea_plugin_context* context, fovea_plugin_report* report,
                       const fovea_plugin_sink* sink) {
  int refused = 0;
  (void)self;
#define REFUSE_IF(condition, code, field, got, accepted) \
  do {                                                   \
    if (condition) {                                     \
      refuse(sink, code, field, got, accepted);          \
      refused = 1;                                       \
    }                                                    \
  } while (0)
  REFUSE_IF(strcmp(context->platform, "cpu") != 0 && strcmp(context->platform, "toy") != 0,
            "platform", "platform", context->platform, "cpu, toy");
  REFUSE_IF(p->dtype.code != 2 || p->dtype.bits != 32, "dtype", "dtype", "another type", "f32");
  REFUSE_IF(p->layout == FOVEA_LAYOUT_PACKED, "packed", "layout", "packed", "bshd, bhsd");
  REFUSE_IF(p->mask_kind != FOVEA_MASK_NONE, "mask", "mask", "a mask", "none, causal");
  REFUSE_IF(p->has_kv_lengths, "kv_lengths", "kv_lengths", "given", "none");
  REFUSE_IF(p->window_left >= 0 || p->window_right >= 0, "window", "window", "given", "none");
  REFUSE_IF(p->sparse_pattern != NULL, "sparse", "sparse", p->sparse_pattern, "none");
#undef REFUSE_IF
  if (refused) {
    report->support = FOVEA_UNSUPPORTED;
    return FOVEA_OK;
  }
  report->support = FOVEA_UNMIGRATED;
  report->compilation_mode = FOVEA_CUSTOM_OP;
  report->deterministic = 1;
  report->workspace_bytes = (uint64_t)(p->seq_kv > 0 ? p->seq_kv : 1) * sizeof(double);
  report->path = "cpu.naive";
  report->instance = "f32";
  report->compute_qk = report->compute_pv = "f64";
  report->accumulate = sums_in_single(context) ? "f32" : "f64";
  return FOVEA_OK;
}

static int32_t plan(void* self, const fovea_plugin_problem* p, const fovea_plugin_context* context,
                    void** made, const fovea_plugin_sink* sink) {
  naive_plan* n = malloc(sizeof *n);
  (void)self;
  if (n == NULL) {
    sink->set_message(sink, "no memory for the plan");
    return 400; /* out_of_memory */
  }
  n->batch = p->batch;
  n->heads_q = p->heads_q;
  n->heads_kv = p->heads_kv;
  n->seq_q = p->seq_q;
  n->seq_kv = p->seq_kv;
  n->head_dim = p->head_dim;
  n->dim_v = p->dim_v;
  n->causal = p->causal;
  n->lse = p->lse;
  n->single = sums_in_single(context);
  n->scale = p->scale;
  n->in_seq = p->layout == FOVEA_LAYOUT_BHSD ? 2 : 1;
  n->in_head = 3 - n->in_seq;
  n->out_seq = p->out_layout == FOVEA_LAYOUT_BHSD ? 2 : 1;
  n->out_head = 3 - n->out_seq;
  *made = n;
  return FOVEA_OK;
}

static uint64_t workspace_bytes(void* self, const void* made) {
  const naive_plan* n = made;
  (void)self;
  return (uint64_t)(n->seq_kv > 0 ? n->seq_kv : 1) * sizeof(double);
}

static void release(void* self, void* made) {
  (void)self;
  free(made);
}

static float* row_of(const fovea_tensor* t, int32_t seq_axis, int32_t head_axis, int64_t b,
                     int64_t s, int64_t h) {
  return (float*)t->data + b * t->stride[0] + s * t->stride[seq_axis] + h * t->stride[head_axis];
}

/* One query row: scores, softmax with the largest score subtracted, weighted sum. */
static void attend(const naive_plan* n, const fovea_plugin_run* run, int64_t b, int64_t h,
                   int64_t i) {
  const int64_t kv_head = h / (n->heads_q / n->heads_kv);
  const int64_t keys = n->causal ? i + 1 + n->seq_kv - n->seq_q : n->seq_kv;
  const float* q = row_of(&run->q, n->in_seq, n->in_head, b, i, h);
  float* out = row_of(&run->out, n->out_seq, n->out_head, b, i, h);
  double* weights = run->workspace;
  double largest = -INFINITY, sum = 0;
  int64_t j, d;
  for (j = 0; j < keys; ++j) {
    const float* k = row_of(&run->k, n->in_seq, n->in_head, b, j, kv_head);
    double score = 0;
    for (d = 0; d < n->head_dim; ++d) score += (double)q[d] * (double)k[d];
    weights[j] = score * n->scale;
    if (weights[j] > largest) largest = weights[j];
  }
  for (j = 0; j < keys; ++j) sum += weights[j] = exp(weights[j] - largest);
  for (d = 0; d < n->dim_v; ++d) {
    double value = 0;
    for (j = 0; j < keys; ++j) {
      value += weights[j] * (double)row_of(&run->v, n->in_seq, n->in_head, b, j, kv_head)[d];
      if (n->single) value = (float)value;
    }
    out[d] = keys > 0 ? (float)(value / sum) : 0.0f; /* a row without keys is zero */
  }
  if (n->lse) {
    float* lse = (float*)run->lse.data + b * run->lse.stride[0] + h * run->lse.stride[1] +
                 i * run->lse.stride[2];
    *lse = keys > 0 ? (float)(largest + log(sum)) : -INFINITY;
  }
}

static int32_t run(void* self, const void* made, const fovea_plugin_run* call,
                   const fovea_plugin_sink* sink) {
  const naive_plan* n = made;
  int64_t b, h, i;
  (void)self;
  (void)sink;
  for (b = 0; b < n->batch; ++b)
    for (h = 0; h < n->heads_q; ++h)
      for (i = 0; i < n->seq_q; ++i) attend(n, call, b, h, i);
  return FOVEA_OK;
}

static const char* const kAccumulate[] = {"f64", "f32"};
static const fovea_plugin_option kOption = {
    sizeof(fovea_plugin_option),
    "accumulate",
    FOVEA_OPTION_CHOICE,
    0,
    0,
    0,
    0,
    2,
    kAccumulate,
    "\"f64\"",
    "Type in which the weighted sum is kept.",
};
static const fovea_plugin_option* const kOptions[] = {&kOption};

static const fovea_plugin_backend kNaive = {
    sizeof(fovea_plugin_backend),
    FOVEA_PLUGIN_ABI_MAJOR,
    FOVEA_PLUGIN_ABI_MINOR,
    NULL,
    "naive",
    "NAIVE_ATTN",
    resolve,
    plan,
    run,
    release,
    workspace_bytes,
    0,
    1,
    kOptions,
};
static const fovea_plugin_backend* const kBackends[] = {&kNaive};

/* The toy runs NAIVE_ATTN and nothing else. */
static int32_t judge(void* self, const char* backend_name, const fovea_plugin_policy_query* query,
                     const fovea_plugin_sink* sink) {
  (void)self;
  (void)query;
  if (strcmp(backend_name, "NAIVE_ATTN") == 0) return FOVEA_OK;
  {
    fovea_plugin_reason reason;
    memset(&reason, 0, sizeof reason);
    reason.struct_size = sizeof reason;
    reason.code = "platform";
    reason.field = "platform";
    reason.got = "toy";
    reason.accepted = "NAIVE_ATTN only";
    reason.remedy = "choose NAIVE_ATTN";
    sink->add_reason(sink, &reason);
  }
  return FOVEA_OK;
}

static const fovea_plugin_fact kMemory = {
    sizeof(fovea_plugin_fact), "memory", FOVEA_FACT_INTEGER, 1, "memory in MiB",
};
static const fovea_plugin_fact* const kFacts[] = {&kMemory};
static const char* const kOrder[] = {"NAIVE_ATTN"};
static const fovea_plugin_platform kToy = {
    sizeof(fovea_plugin_platform),
    FOVEA_PLUGIN_ABI_MAJOR,
    FOVEA_PLUGIN_ABI_MINOR,
    NULL,
    "toy",
    "a pretended device",
    1, /* DLPack's number of the CPU */
    1,
    kFacts,
    1,
    kOrder,
    judge,
};
static const fovea_plugin_platform* const kPlatforms[] = {&kToy};
static const fovea_plugin kPlugin = {
    sizeof(fovea_plugin),
    FOVEA_PLUGIN_ABI_MAJOR,
    FOVEA_PLUGIN_ABI_MINOR,
    "naive",
    "1.0",
    1,
    kBackends,
    1,
    kPlatforms,
    0, /* packages */
    NULL,
    0, /* accesses to devices */
    NULL,
};

int32_t fovea_plugin_entry(const fovea_plugin_host* host, const fovea_plugin** plugin,
                           const fovea_plugin_sink* sink) {
  if (host->abi_major != FOVEA_PLUGIN_ABI_MAJOR) {
    sink->set_message(sink, "written for version 1 of the plugin interface");
    return 202; /* not_available */
  }
  *plugin = &kPlugin;
  return FOVEA_OK;
}
