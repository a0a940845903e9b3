/* The plugin interface (C99): a shared library that brings backends, or a platform, to Fovea
 * without its sources.
 *
 * A plugin exports one function, fovea_plugin_entry. Rules for everything that crosses:
 *  - Plain structs. The first field of each is struct_size = sizeof(the struct) as its writer knows
 * it. Fields are only ever appended; one that lies beyond struct_size is absent. An optional entry
 * may be NULL.
 *  - The library refuses another major version of this interface and accepts any minor one.
 *  - Lists are arrays of pointers, so that both sides may know different sizes of their items.
 *  - Strings are UTF-8, NUL-terminated, at most 4095 bytes, and copied by the receiver. Those in
 * fovea_plugin and fovea_plugin_backend must stay valid while the process runs, as must these
 * structs; those that the library passes are valid until the call returns.
 *  - Each side frees what it made. No exception may leave a call; the library survives one and
 * reports it.
 *  - Calls return FOVEA_OK (0) or an error number of c_api.h, with a message or reasons through the
 * sink.
 *  - Calls may come from several threads at once. The library is never unloaded.
 */
#ifndef FOVEA_PLUGIN_H_
#define FOVEA_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#include "fovea/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FOVEA_PLUGIN_ABI_MAJOR 1
#define FOVEA_PLUGIN_ABI_MINOR 2

/* --- What the library passes
 * -------------------------------------------------------------------------------- */

/* One refusal. `code` is the name of a reason code ("head_dim", "mask", "architecture", ...); the
 * other strings may be NULL. `field` is what was judged, `got` what was asked, `accepted` what
 * would do, `remedy` what to do. */
typedef struct fovea_plugin_reason {
  size_t struct_size;
  const char* code;
  const char* field;
  const char* got;
  const char* accepted;
  const char* remedy;
} fovea_plugin_reason;

/* Takes reasons and messages; everything is copied before the function returns. Valid during the
 * call. At most 32 reasons are kept. */
typedef struct fovea_plugin_sink {
  size_t struct_size;
  void* host;
  void (*add_reason)(const struct fovea_plugin_sink* sink, const fovea_plugin_reason* reason);
  void (*set_message)(const struct fovea_plugin_sink* sink, const char* message);
} fovea_plugin_sink;

typedef struct fovea_plugin_host {
  size_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* version; /* of the library, "0.1.0" */
} fovea_plugin_host;

/* DLPack's values: float = 2, bfloat = 4, bool = 6, int = 0, uint = 1. */
typedef struct fovea_plugin_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} fovea_plugin_dtype;

enum { FOVEA_LAYOUT_BSHD = 0, FOVEA_LAYOUT_BHSD = 1, FOVEA_LAYOUT_PACKED = 2 };
/* keys: [1|B,Skv]; boolean: true = attend; bias: added to the scores. */
enum { FOVEA_MASK_NONE = 0, FOVEA_MASK_KEYS = 1, FOVEA_MASK_BOOLEAN = 2, FOVEA_MASK_BIAS = 3 };

/* What is to be computed, without tensor values. Sizes are in elements. Strides are those of batch,
 * sequence and head, in elements; the last axis is contiguous. Packed: seq_* are token totals. */
typedef struct fovea_plugin_problem {
  size_t struct_size;
  const char* text; /* the problem string */
  fovea_plugin_dtype dtype;
  fovea_plugin_dtype out_dtype;
  int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, dim_v;
  int32_t layout;
  int32_t out_layout;
  int32_t causal;
  int32_t lse;
  int64_t window_left, window_right; /* -1: unbounded */
  double scale;                      /* the one that applies */
  int32_t mask_kind;
  fovea_plugin_dtype mask_dtype;
  int32_t mask_per_batch, mask_per_head, mask_per_query; /* 0: that axis has size 1 */
  int32_t has_kv_lengths;
  int64_t documents, max_document_q, max_document_kv;
  int64_t q_strides[3], k_strides[3], v_strides[3];
  int32_t alignment;          /* bytes that the addresses of q, k and v are divisible by */
  const char* sparse_pattern; /* name of the pattern, or NULL */
} fovea_plugin_problem;

/* Where and how the call will run. */
typedef struct fovea_plugin_context {
  size_t struct_size;
  const char* backend_name; /* the name through which the backend was reached */
  const char* platform;     /* "cpu", "cuda", "rocm", "npu", "xpu", "musa" */
  const char* facts;        /* "cuda: sm=90,cudnn=9.19" */
  const char* spec_json;    /* the configuration's entry as JSON, or NULL for a platform default */
  int32_t local;            /* 0: the facts describe another machine; only resolve is called */
  int32_t require_fullgraph;
  int32_t paged_kv;
  int32_t piecewise;
  int32_t sparse_state;
  const char* mask_mode;         /* "none", "padding", "arbitrary", "unknown" */
  const char* packing_mode;      /* "none", "packed_padding", "multi_document" */
  const char* parallel_strategy; /* "none", "ulysses", ... */
  const char* kv_cache_dtype;    /* "" when unset */
  /* First keys that a sparse selection has to keep, 0 for none; refuse what cannot keep them. */
  int64_t protected_kv_prefix;
  /* What skip_softmax of the entry comes to in this call: NULL (there is none), "skips", "off",
   * "uncalibrated", "ignored_layer", "gated", "unknown_timestep". Key tiles may be skipped with
   * "skips" only; then the ones that cannot raise a row above skip_factor / keys. */
  const char* skip_softmax;
  double skip_factor;
} fovea_plugin_context;

enum { FOVEA_SUPPORTED = 0, FOVEA_UNSUPPORTED = 1, FOVEA_UNMIGRATED = 2 };
enum { FOVEA_TRACEABLE = 0, FOVEA_CUSTOM_OP = 1, FOVEA_EAGER_ONLY = 2 };

/* The answer of resolve. The library fills in the defaults named here; the plugin writes what it
 * knows. Strings must stay valid while the process runs. An unsupported answer needs at least one
 * reason in the sink. */
typedef struct fovea_plugin_report {
  size_t struct_size;
  int32_t
      support; /* FOVEA_UNSUPPORTED; a supported answer counts as unmigrated except on the CPU */
  int32_t compilation_mode; /* FOVEA_EAGER_ONLY */
  int32_t lossy;            /* 0 */
  int32_t deterministic;    /* 0 */
  int32_t has_density;      /* 0 */
  double density;           /* share of key blocks kept, in [0, 1] */
  uint64_t workspace_bytes; /* 0 */
  const char* path;         /* e.g. "cpu.naive"; NULL: "plugin." and the backend's name */
  const char* instance;     /* e.g. "f32"; NULL: "default" */
  const char* compute_qk;   /* element type of the score product; NULL: "unstated" */
  const char* compute_pv;   /* of the value product; NULL: "unstated" */
  const char* accumulate;   /* NULL: "unstated" */
} fovea_plugin_report;

enum {
  FOVEA_OPTION_BOOLEAN = 0,
  FOVEA_OPTION_INTEGER = 1,
  FOVEA_OPTION_NUMBER = 2,
  FOVEA_OPTION_TEXT = 3,
  FOVEA_OPTION_CHOICE = 4
};

/* One key of extra.<NAME>, where NAME is the backend's name. The library checks configurations
 * against it; unknown keys are errors. Since 1.1. */
typedef struct fovea_plugin_option {
  size_t struct_size;
  const char* name;                 /* [a-z][a-z0-9_]* */
  int32_t type;                     /* FOVEA_OPTION_... */
  int32_t has_minimum, has_maximum; /* integer and number */
  double minimum, maximum;
  size_t choice_count; /* choice: at least one */
  const char* const* choices;
  const char* default_value; /* JSON text; NULL: none */
  const char* summary;       /* one line; NULL: none */
} fovea_plugin_option;

enum { FOVEA_FACT_VERSION = 0, FOVEA_FACT_FLAG = 1, FOVEA_FACT_INTEGER = 2, FOVEA_FACT_TEXT = 3 };

/* One fact that a platform knows. Since 1.1. */
typedef struct fovea_plugin_fact {
  size_t struct_size;
  const char* key; /* [a-z][a-z0-9_]* */
  int32_t type;    /* FOVEA_FACT_... */
  int32_t required;
  const char* summary; /* one line; NULL: none */
} fovea_plugin_fact;

/* What a platform's policy is asked. Since 1.1. */
typedef struct fovea_plugin_policy_query {
  size_t struct_size;
  const char* facts;    /* "mychip: cores=4" */
  int64_t head_dim;     /* 0: unknown */
  int32_t mask_free;    /* the model promises that no mask will be passed */
  const char* provider; /* "" for any */
} fovea_plugin_policy_query;

typedef void (*fovea_plugin_task)(void* user, int64_t index, int32_t worker);

/* One call. The tensors fit the planned problem (shapes, strides, dtypes; CPU values checked);
 * absent ones have rank 0. `workspace` is aligned to 256 bytes and has at least the bytes the plan
 * asked for. parallel_for runs task(user, index, worker) for every index in [0, count) with worker
 * in [0, workers), on the caller's threads, and returns when all are done; calls may not nest. */
typedef struct fovea_plugin_run {
  size_t struct_size;
  fovea_tensor q, k, v, out, lse, mask, kv_lengths, cu_seqlens_q, cu_seqlens_kv;
  void* workspace;
  size_t workspace_bytes;
  void* stream;
  void* host;
  int32_t workers;
  void (*parallel_for)(const struct fovea_plugin_run* run, int64_t count, fovea_plugin_task task,
                       void* user);
} fovea_plugin_run;

/* --- What the plugin gives
 * ---------------------------------------------------------------------------------- */

/* A backend. `self` is handed back to every call and may be NULL. Entries are required unless
 * marked optional. */
typedef struct fovea_plugin_backend {
  size_t struct_size;
  uint32_t abi_major; /* FOVEA_PLUGIN_ABI_MAJOR */
  uint32_t abi_minor;
  void* self;
  /* What stands after '#' in plugin:/path/lib.so#name: letters, digits, '_', '-', '.'; unique in
   * the plugin. */
  const char* name;
  /* The name that loading puts this backend behind: a new one ([A-Z][A-Z0-9_]*) or one that exists,
   * which it then replaces. Optional: NULL leaves it to be registered by its path. */
  const char* backend_name;
  /* Pure and without device access. */
  int32_t (*resolve)(void* self, const fovea_plugin_problem* problem,
                     const fovea_plugin_context* context, fovea_plugin_report* report,
                     const fovea_plugin_sink* sink);
  /* Only after resolve said supported or unmigrated for the same arguments. Stores the plan, not
   * NULL. */
  int32_t (*plan)(void* self, const fovea_plugin_problem* problem,
                  const fovea_plugin_context* context, void** plan, const fovea_plugin_sink* sink);
  /* Allocates nothing and does not synchronise the device. */
  int32_t (*run)(void* self, const void* plan, const fovea_plugin_run* run,
                 const fovea_plugin_sink* sink);
  /* Optional: frees a plan. */
  void (*release)(void* self, void* plan);
  /* Optional: scratch bytes of the plan. NULL: none. */
  uint64_t (*workspace_bytes)(void* self, const void* plan);
  /* Not 0: the backend reads option blocks in spec_json. 0: the library refuses entries that have
   * some. */
  int32_t reads_options;
  /* Optional: the keys of extra.<backend_name>. A backend that has some reads them in spec_json.
   * Since 1.1. */
  size_t option_count; /* at most 64 */
  const fovea_plugin_option* const* options;
} fovea_plugin_backend;

/* A platform. Backends that run on it are registered like any other. Since 1.1. */
typedef struct fovea_plugin_platform {
  size_t struct_size;
  uint32_t abi_major; /* FOVEA_PLUGIN_ABI_MAJOR */
  uint32_t abi_minor;
  void* self;
  const char* name;    /* [a-z][a-z0-9_]*; none of the built-in ones */
  const char* summary; /* one line; NULL: none */
  int32_t device_type; /* DLPack's number of the device that holds its tensors (CPU = 1) */
  size_t fact_count;   /* at most 64 */
  const fovea_plugin_fact* const* facts;
  /* The names to try, in order, when nothing is chosen. */
  size_t order_count; /* 1 to 64 */
  const char* const* order;
  /* Judges one name; adds a reason for every refusal. Pure, without device access. */
  int32_t (*judge)(void* self, const char* backend_name, const fovea_plugin_policy_query* query,
                   const fovea_plugin_sink* sink);
} fovea_plugin_platform;

typedef struct fovea_plugin {
  size_t struct_size;
  uint32_t abi_major; /* FOVEA_PLUGIN_ABI_MAJOR */
  uint32_t abi_minor;
  const char* name;
  const char* version;
  size_t backend_count; /* at most 64; 0 only with something else to give */
  const fovea_plugin_backend* const* backends;
  /* Optional. Since 1.1. */
  size_t platform_count; /* at most 8 */
  const fovea_plugin_platform* const* platforms;
  /* Optional: kernels of packages, bound at load as by fovea_bind_package, and accesses to devices
   * for validation runs. Either of them may be all that a plugin has. Since 1.2. */
  size_t package_count; /* at most 64 */
  const struct fovea_package* const* packages;
  size_t access_count; /* at most 8 */
  const struct fovea_device_access* const* accesses;
} fovea_plugin;

/* --- Devices that the library has no code for
 * ----------------------------------------------------------------------------------------- */

/* One device. The library fills in NULL; strings stay valid until the next call. */
typedef struct fovea_device_info {
  size_t struct_size;
  const char* facts;   /* "gfx=gfx942,aiter=0.1.7": the device's, and the packages' on this host */
  const char* name;    /* as its vendor calls it */
  const char* driver;  /* its version */
  int32_t device_type; /* DLPack's number for tensors there: 1, 2, 3, 10, 12 or 14 */
} fovea_device_info;

enum { FOVEA_COPY_TO_DEVICE = 0, FOVEA_COPY_TO_HOST = 1 };

/* Memory and recordings of the devices of one platform: what `fovea check --contract --device
 * PLATFORM[:N]` works with. Entries are required unless marked optional, return FOVEA_OK or an
 * error number, and come from one thread at a time. `index` counts devices from 0. Since 1.2. */
typedef struct fovea_device_access {
  size_t struct_size;
  uint32_t abi_major; /* FOVEA_PLUGIN_ABI_MAJOR */
  uint32_t abi_minor;
  void* self;
  const char* platform; /* "rocm", "npu", "xpu", "musa", "cuda", or one that a plugin adds */
  int32_t (*describe)(void* self, int32_t index, fovea_device_info* info,
                      const fovea_plugin_sink* sink);
  /* Aligned to 256 bytes; bytes > 0. Stores the address, not NULL. */
  int32_t (*allocate)(void* self, int32_t index, uint64_t bytes, void** memory,
                      const fovea_plugin_sink* sink);
  void (*release)(void* self, int32_t index, void* memory);
  /* Done when it returns, after all earlier work of the stream. */
  int32_t (*copy)(void* self, int32_t index, void* to, const void* from, uint64_t bytes,
                  int32_t direction, const fovea_plugin_sink* sink);
  /* Waits for everything that runs there; errors of earlier work are reported here. */
  int32_t (*synchronise)(void* self, int32_t index, const fovea_plugin_sink* sink);
  /* Optional, all three or none: records what call(user, stream) does, and runs the recording. */
  int32_t (*capture)(void* self, int32_t index, int32_t (*call)(void* user, void* stream),
                     void* user, void** recording, const fovea_plugin_sink* sink);
  int32_t (*replay)(void* self, int32_t index, void* recording, const fovea_plugin_sink* sink);
  void (*drop)(void* self, int32_t index, void* recording);
  /* Optional: the stream that calls run on; NULL: the default one. */
  void* (*stream)(void* self, int32_t index);
} fovea_device_access;

/* --- Kernels of packages
 * ------------------------------------------------------------------------------------ */

/* One call of a package's kernel. `run` has the tensors in the form that the path takes
 * (docs/execution.md), no workspace and no parallel_for. */
typedef struct fovea_package_call {
  size_t struct_size;
  const char* backend_name;
  const char* path; /* as resolution reported it */
  const fovea_plugin_problem* problem;
  const fovea_plugin_run* run;
  int64_t valid_queries; /* rows from here on are padding: output 0, lse -inf */
} fovea_package_call;

/* A kernel of a package that the host program brings. Fovea judges, normalises and prepares; the
 * kernel computes. `self` is handed back to every call. */
typedef struct fovea_package {
  size_t struct_size;
  const char* package; /* the fact that stands for it: "fa4", "flash_attn", "torch", ... */
  const char* version; /* NULL: as the facts say */
  void* self;
  int32_t (*run)(void* self, const fovea_package_call* call, const fovea_plugin_sink* sink);
  /* Optional: the package's own rule for head sizes; not 0 refuses, with the reason as message.
   * `alignment` is the number of elements in 16 bytes. */
  int32_t (*validate_dims)(void* self, int64_t head_dim, int64_t dim_v, int64_t alignment,
                           const fovea_plugin_sink* sink);
  /* Optional: adds a reason for everything that the kernel cannot do; pure. */
  void (*refuse)(void* self, const char* backend_name, const fovea_plugin_problem* problem,
                 const fovea_plugin_sink* sink);
  /* A file that `fovea check --contract --record` or `python -m fovea.check` wrote of this kernel,
   * read at once; NULL: only committed records count. */
  const char* validation_record;
} fovea_package;

/* Gives the kernel to every name whose policy row the package provides; replaces an earlier one.
 * The functions and `self` stay valid until the package is unbound and no call runs. */
FOVEA_C_API int32_t fovea_bind_package(const fovea_package* package, fovea_error** error);
FOVEA_C_API void fovea_unbind_package(const char* package);

/* --- Validation runs
 * ---------------------------------------------------------------------------------------------- */

/* One versioned piece of the host program's software, for the record. */
typedef struct fovea_software {
  size_t struct_size;
  const char* name;
  const char* version;
} fovea_software;

typedef struct fovea_validation_options {
  size_t struct_size;
  const char* device; /* "cpu", "cuda[:N]", or PLATFORM[:N] */
  /* Memory of the device that the host program lends; NULL: the library's own on the CPU and on
   * CUDA, elsewhere what a plugin gives. */
  const fovea_device_access* access;
  const char* role; /* NULL: "self" */
  const char* category;
  int32_t threads;       /* of the oracle and of CPU kernels; <= 0: OpenMP's default */
  size_t software_count; /* at most 64 */
  const fovea_software* const* software;
  /* Optional: called before each case. */
  void (*progress)(void* user, uint64_t done, uint64_t total, const char* problem);
  void* user;
} fovea_validation_options;

/* The validation run of `fovea check --contract` (docs/validation) for the backend of `config`, on
 * this thread. `json`: its record, fovea.validation/1; "path" is null when every case was refused,
 * "pass" says whether it counts. Free it with fovea_string_free. */
FOVEA_C_API int32_t fovea_validate_path(const fovea_config* config,
                                        const fovea_validation_options* options, char** json,
                                        fovea_error** error);

/* The function that a plugin exports under this name. Stores its description, which stays valid
 * while the process runs. May be called more than once, by one thread at a time. A plugin that
 * cannot work here returns an error number and sets a message. */
FOVEA_C_API int32_t fovea_plugin_entry(const fovea_plugin_host* host, const fovea_plugin** plugin,
                                       const fovea_plugin_sink* sink);
typedef int32_t (*fovea_plugin_entry_function)(const fovea_plugin_host* host,
                                               const fovea_plugin** plugin,
                                               const fovea_plugin_sink* sink);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FOVEA_PLUGIN_H_ */
