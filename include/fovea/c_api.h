/* The C interface (C99). Opaque handles, codes and message handles; no C++ type, exception or FILE
 * crosses.
 *
 * Rules for every function:
 *  - It returns FOVEA_OK (0) or an error number (see fovea_error_code_name). On an error nothing is
 * written to the outputs, and if `error` is not NULL it receives a handle for fovea_error_free.
 *  - Structs start with struct_size = sizeof(the struct); fields beyond it are taken as absent.
 *  - Strings are UTF-8, NUL-terminated, copied by the receiver; NULL means absent where stated.
 *  - Handles are thread-safe to use from several threads; freeing is the last use. Freeing NULL
 * does nothing.
 */
#ifndef FOVEA_C_API_H_
#define FOVEA_C_API_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FOVEA_C_API __attribute__((visibility("default")))
#else
#define FOVEA_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FOVEA_OK 0
#define FOVEA_C_API_VERSION 1

typedef struct fovea_error fovea_error;
typedef struct fovea_config fovea_config;
typedef struct fovea_attention fovea_attention;
typedef struct fovea_plan fovea_plan;
typedef struct fovea_receipt fovea_receipt;
typedef struct fovea_metadata fovea_metadata;
typedef struct fovea_mask_map fovea_mask_map;
typedef struct fovea_sparse_state fovea_sparse_state;
typedef struct fovea_block_mask fovea_block_mask;

/* "0.1.0"; static storage. */
FOVEA_C_API const char* fovea_version(void);
/* FOVEA_C_API_VERSION of the library that is loaded. */
FOVEA_C_API int32_t fovea_c_api_version(void);

/* --- Errors
 * -------------------------------------------------------------------------------------------------
 */

/* One refusal as data. The strings live as long as their error or receipt. */
typedef struct fovea_reason {
  const char* code; /* e.g. "head_dim" */
  const char* field;
  const char* got;
  const char* accepted;
  const char* remedy;
  const char* message; /* the sentence */
} fovea_reason;

FOVEA_C_API int32_t fovea_error_code(const fovea_error* error);
/* Static storage; "unknown" for a number that is no code. */
FOVEA_C_API const char* fovea_error_code_name(int32_t code);
FOVEA_C_API const char* fovea_error_message(const fovea_error* error);
FOVEA_C_API size_t fovea_error_reason_count(const fovea_error* error);
/* Zeroed strings ("") when index is out of range. */
FOVEA_C_API fovea_reason fovea_error_reason(const fovea_error* error, size_t index);
FOVEA_C_API void fovea_error_free(fovea_error* error);

/* Frees a string that a function here returned through an output. */
FOVEA_C_API void fovea_string_free(char* text);

/* --- Configuration
 * ------------------------------------------------------------------------------------------ */

/* `json`: text, or NULL for an empty configuration. `backend`: shorthand for the default, or NULL.
 * use_environment != 0 reads FOVEA_BACKEND when no default is set. */
FOVEA_C_API int32_t fovea_config_create(const char* json, const char* backend,
                                        int32_t use_environment, fovea_config** config,
                                        fovea_error** error);
/* The normalised JSON; free with fovea_string_free. */
FOVEA_C_API int32_t fovea_config_to_json(const fovea_config* config, char** json,
                                         fovea_error** error);
FOVEA_C_API void fovea_config_free(fovea_config* config);

/* --- Calls
 * --------------------------------------------------------------------------------------------------
 */

/* A strided tensor that the caller owns. rank 0 means absent. Strides are in elements. device_type,
 * dtype_code and dtype_bits have DLPack's values (CPU = 1, CUDA = 2; float = 2, bfloat = 4, bool =
 * 6, int = 0, uint = 1). */
typedef struct fovea_tensor {
  void* data;
  int32_t device_type;
  int32_t device_index;
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint16_t dtype_lanes; /* 1 */
  int32_t rank;
  int64_t shape[5];
  int64_t stride[5];
} fovea_tensor;

/* What a model states about the masks and lengths of its calls, from a JSON map (docs/metadata.md).
 * Unknown keys are errors. One object may serve many calls. */
FOVEA_C_API int32_t fovea_metadata_create(const char* json, fovea_metadata** metadata,
                                          fovea_error** error);
FOVEA_C_API void fovea_metadata_free(fovea_metadata* metadata);

/* A layer. Names may be NULL: role "self", no category. Zero sizes accept any. threads <= 0:
 * OpenMP's default. */
typedef struct fovea_layer_options {
  size_t struct_size;
  const char* role;
  const char* category;
  int64_t heads_q;
  int64_t heads_kv;
  int64_t head_dim;
  int64_t dim_v;
  int32_t mask_free;
  int32_t threads;
  /* Facts ("sm=90,cudnn=9.19") that stand for every device of the layer, and their platform; NULL:
   * those of the devices themselves. */
  const char* platform;
  const char* facts;
  /* For skip_softmax.target_sparsity: the layer's name in the checkpoint and the checkpoint's
   * calibration as JSON (docs/config.md), or NULL. */
  const char* name;
  const char* calibration;
} fovea_layer_options;

/* One call. q [B,Sq,Hq,D], k [B,Skv,Hkv,D], v [B,Skv,Hkv,Dv] in input_layout ("bshd" when NULL);
 * out [B,Sq,Hq,Dv] contiguous in output_layout (NULL: the input layout); lse float32 [B,Hq,Sq],
 * packed [Hq,Tq], absent when not wanted. An argument here beats the configuration. Set window_left
 * and window_right to -1 for none. */
typedef struct fovea_call {
  size_t struct_size;
  fovea_tensor q, k, v;
  fovea_tensor out;
  fovea_tensor lse;
  fovea_tensor mask;
  fovea_tensor kv_lengths;
  fovea_tensor cu_seqlens_q;
  fovea_tensor cu_seqlens_kv;
  const char* input_layout;
  const char* output_layout;
  double scale;
  int32_t has_scale;
  int32_t is_causal;
  int32_t has_is_causal;
  int64_t window_left;
  int64_t window_right;
  int64_t max_seqlen_q;
  int64_t max_seqlen_kv;
  void* stream;
  const fovea_metadata* metadata; /* NULL: nothing is stated */
  /* The key blocks that every block of queries reads, ascending: counts int32 [1|B,1|Hq,rows],
   * indices int32 [1|B,1|Hq,rows,most]; partial uint8 like the indices, 1 where the mask hides
   * tokens inside the block. On the device of q, contiguous. */
  fovea_tensor block_counts;
  fovea_tensor block_indices;
  fovea_tensor block_partial;
  int32_t block_q; /* tokens in a block: 64 or 128; 0: 128 */
  int32_t block_kv;
  const fovea_block_mask* block_mask; /* in place of the three tensors; fovea_attention_run only */
  const fovea_sparse_state* sparse_state; /* for layers whose backend is sparse */
  /* Where the denoising run stands, in [0, 1]: 1 is pure noise. Read by the gate of skip_softmax;
   * a gated layer that is not told runs dense. A plan holds for its side of the gate. */
  double timestep;
  int32_t has_timestep;
} fovea_call;

/* `config` is copied; NULL means an empty one (platform default). */
FOVEA_C_API int32_t fovea_attention_create(const fovea_layer_options* options,
                                           const fovea_config* config, fovea_attention** attention,
                                           fovea_error** error);
FOVEA_C_API void fovea_attention_free(fovea_attention* attention);

/* Shape and contiguous strides of out and lse for the call's q, k, v, layouts and flags; the data
 * pointers are not read and the results' data is NULL. `lse` may be NULL. */
FOVEA_C_API int32_t fovea_output_spec(const fovea_call* call, fovea_tensor* out, fovea_tensor* lse,
                                      fovea_error** error);

/* Plans (cached) and runs into call->out and call->lse. `receipt` may be NULL. */
FOVEA_C_API int32_t fovea_attention_run(const fovea_attention* attention, const fovea_call* call,
                                        fovea_receipt** receipt, fovea_error** error);

/* A second stream of tokens, such as text, in the layout of the call and with its batch, heads,
 * sizes and type: q [B,Sj,Hq,D], k [B,Sj,Hkv,D], v [B,Sj,Hkv,Dv]. */
typedef struct fovea_joint_tokens {
  size_t struct_size;
  fovea_tensor q, k, v;
  const char* strategy; /* "front" (NULL): before the tokens of the call, or "rear": behind them */
} fovea_joint_tokens;

/* Attention over both streams as one sequence, on the CPU. call->out and call->lse are of that
 * sequence, Sj + S tokens in the order of the strategy, and so is everything else that the call
 * says. The receipt's "copies" name the tensors that were joined. */
FOVEA_C_API int32_t fovea_attention_run_jointly(const fovea_attention* attention,
                                                const fovea_call* call,
                                                const fovea_joint_tokens* joint,
                                                fovea_receipt** receipt, fovea_error** error);

/* A plan for callers with their own workspace (aligned to 256 bytes). The layer must outlive it.
 * With a sparse_state it holds for the state's decision at that time; ask again after an update. */
FOVEA_C_API int32_t fovea_attention_plan(const fovea_attention* attention, const fovea_call* call,
                                         fovea_plan** plan, fovea_error** error);
FOVEA_C_API size_t fovea_plan_workspace_bytes(const fovea_plan* plan);
FOVEA_C_API int32_t fovea_plan_run(const fovea_plan* plan, const fovea_call* call, void* workspace,
                                   size_t workspace_bytes, fovea_error** error);
/* What the plan's runs are, as after a run. */
FOVEA_C_API int32_t fovea_plan_receipt(const fovea_plan* plan, fovea_receipt** receipt,
                                       fovea_error** error);
/* The problem string that the plan is for; free with fovea_string_free. */
FOVEA_C_API int32_t fovea_plan_problem(const fovea_plan* plan, char** text, fovea_error** error);
FOVEA_C_API void fovea_plan_free(fovea_plan* plan);

/* What the host engine declares around a call; NULL or 0 where nothing is. */
typedef struct fovea_surroundings {
  size_t struct_size;
  const char* parallel_strategy; /* "ulysses", "ring", "hybrid_ulysses_ring", "allgather_kv" */
  const char* outer_boundaries;  /* "hsdp", "attention_schedule", or both joined by ',' */
  int32_t paged_kv;
  const char* kv_cache_dtype; /* of paged storage */
  int32_t require_fullgraph;
} fovea_surroundings;

/* The report of the execution contract (docs/execution.md) for the call's shapes and metadata, on
 * the device of q; data pointers are not read. `surroundings` may be NULL. Advisory; ask again when
 * the metadata changes.
 * {"backend","provider","platform","kernel_variant","path","instance","support",
 * "compilation_mode","parallel_strategy","built","lossy","workspace_bytes","reasons",
 * "requested":{"status","reasons"}} as JSON; "requested" answers require_fullgraph. */
FOVEA_C_API int32_t fovea_attention_resolve(const fovea_attention* attention,
                                            const fovea_call* call,
                                            const fovea_surroundings* surroundings, char** json,
                                            fovea_error** error);

/* --- Block-sparse attention (docs/sparse)
 * ------------------------------------------------------------------------------------ */

/* The masks of one video geometry: video_token_num tokens in num_frame equal frames. grid_height
 * and grid_width, in blocks, are for local windows; 0 for none. */
FOVEA_C_API int32_t fovea_mask_map_create(int64_t video_token_num, int64_t num_frame,
                                          int64_t grid_height, int64_t grid_width,
                                          fovea_mask_map** map, fovea_error** error);
FOVEA_C_API void fovea_mask_map_free(fovea_mask_map* map);

/* Where one request stands in its denoising run. Made from the sparse entry that `config` has for
 * role and category (as in fovea_layer_options); `map` is shared and may be freed at once.
 * model_type: "wan" (also NULL) or "hunyuan". Updates and calls of one state must not overlap. */
FOVEA_C_API int32_t fovea_sparse_state_create(const fovea_config* config, const char* role,
                                              const char* category, const fovea_mask_map* map,
                                              const char* model_type, fovea_sparse_state** state,
                                              fovea_error** error);
FOVEA_C_API void fovea_sparse_state_free(fovea_sparse_state* state);
/* Step 0 is the noisiest; -1 leaves a number as it is. */
FOVEA_C_API int32_t fovea_sparse_state_update(fovea_sparse_state* state, int64_t numeral_timestep,
                                              int64_t layer_idx, fovea_error** error);
/* The run as a whole; finds a schedule that is dense in every step and layer. */
FOVEA_C_API int32_t fovea_sparse_state_begin_run(fovea_sparse_state* state, int64_t steps,
                                                 int64_t layers, fovea_error** error);
/* The step and layer of the last update; either may be NULL. */
FOVEA_C_API void fovea_sparse_state_position(const fovea_sparse_state* state,
                                             int64_t* numeral_timestep, int64_t* layer_idx);
/* For callers that have taken the decision, such as a compiled graph: whatever the step and the
 * layer, calls run dense for this cause (as from fovea_sparse_state_dense_cause), or sparse with
 * "none". */
FOVEA_C_API int32_t fovea_sparse_state_fix(fovea_sparse_state* state, const char* dense_cause,
                                           fovea_error** error);
/* 1 when this step and layer run dense. */
FOVEA_C_API int32_t fovea_sparse_state_should_use_dense(const fovea_sparse_state* state);
/* Why ("none" when sparse), what ("dense", "radial", "local", "block_sparse") and the name of the
 * dense backend; valid as long as the state. */
FOVEA_C_API const char* fovea_sparse_state_dense_cause(const fovea_sparse_state* state);
FOVEA_C_API const char* fovea_sparse_state_sparsity_type(const fovea_sparse_state* state);
FOVEA_C_API const char* fovea_sparse_state_dense_backend(const fovea_sparse_state* state);
/* The mask of the sparse steps for a sequence of the video's tokens and then text. */
FOVEA_C_API int32_t fovea_sparse_state_mask(const fovea_sparse_state* state, int64_t seq_len,
                                            fovea_block_mask** mask, fovea_error** error);

/* What a block mask covers. Sequences may end inside a block; batch or heads of 1 are broadcast. */
typedef struct fovea_block_shape {
  size_t struct_size;
  int64_t seq_q;
  int64_t seq_kv;
  int32_t block_q; /* 64 or 128; 0: 128 */
  int32_t block_kv;
  int64_t batch; /* 0: 1 */
  int64_t heads;
} fovea_block_shape;

/* From size = batch * heads * rows * columns bytes; nonzero is on. Immutable. */
FOVEA_C_API int32_t fovea_block_mask_create(const fovea_block_shape* shape, const uint8_t* matrix,
                                            size_t size, fovea_block_mask** mask,
                                            fovea_error** error);
/* Its lists as views of host memory that live as long as the mask; `partial` has rank 0 when every
 * block is full. Outputs may be NULL. */
FOVEA_C_API int32_t fovea_block_mask_lists(const fovea_block_mask* mask, fovea_block_shape* shape,
                                           fovea_tensor* counts, fovea_tensor* indices,
                                           fovea_tensor* partial, fovea_error** error);
/* The share of blocks that are on; 0 for NULL. */
FOVEA_C_API double fovea_block_mask_density(const fovea_block_mask* mask);
FOVEA_C_API void fovea_block_mask_free(fovea_block_mask* mask);

/* --- Receipts, explain, availability
 * ------------------------------------------------------------------------ */

/* The receipt as JSON ("receipt" of fovea.run/1); lives as long as the receipt. */
FOVEA_C_API const char* fovea_receipt_json(const fovea_receipt* receipt);
FOVEA_C_API void fovea_receipt_free(fovea_receipt* receipt);

/* What would run: fovea.explain/1 as JSON, freed with fovea_string_free. `platform` NULL: this
 * machine's CPU; "cuda:N", "rocm:N", "npu:N", "xpu:N" or "musa:N" with `facts` NULL: that device of
 * this machine, of the last four only what their drivers say; else "cuda", ... with
 * `facts` ("sm=90,cudnn=9.19", NULL or "" allowed). `problem`: a problem string or NULL. `role`
 * NULL: the default and every per_role entry. */
FOVEA_C_API int32_t fovea_explain(const fovea_config* config, const char* platform,
                                  const char* facts, const char* role, const char* category,
                                  const char* problem, char** json, fovea_error** error);

/* The same for a run of `steps` denoising steps and `layers` layers (both at least 1): an entry for
 * every rectangle of steps and layers that runs alike. `schedule`: JSON as in docs/config.md, or
 * NULL. */
FOVEA_C_API int32_t fovea_explain_run(const fovea_config* config, const char* schedule,
                                      const char* platform, const char* facts, const char* role,
                                      const char* category, const char* problem, int64_t steps,
                                      int64_t layers, char** json, fovea_error** error);

/* The same with the noise level of every step, for schedules with sigma windows and the gate of
 * skip_softmax: `sigmas` holds `steps` numbers in [0, 1]. */
FOVEA_C_API int32_t fovea_explain_sigmas(const fovea_config* config, const char* schedule,
                                         const char* platform, const char* facts, const char* role,
                                         const char* category, const char* problem,
                                         const double* sigmas, int64_t steps, int64_t layers,
                                         char** json, fovea_error** error);

/* Everything that fovea_explain and its relatives are asked, and a model in place of a problem.
 * NULL and 0 leave a field out. */
typedef struct fovea_explain_options {
  size_t struct_size;
  const char* device;   /* a preset such as "h200", or "cuda:N" and the like, of this machine */
  const char* platform; /* without a device: as for fovea_explain */
  const char* facts;    /* of the platform; with a preset: changes to it */
  const char* role;     /* NULL: the default and every per_role entry; every role of the model */
  const char* category;
  const char* problem;
  const char* model;     /* a preset such as "wan2.1-t2v-14b", or JSON text (docs/presets.md) */
  int64_t height, width; /* of the model, in pixels; 0: the preset's own, as are the frames */
  int64_t frames;
  const char* dtype; /* of the model's tensors: "f32", "f16" or "bf16"; NULL: "bf16" */
  int32_t mask_free; /* not 0: no call has a mask, beside what is known of the model */
  int64_t steps;     /* a run of so many steps and layers; 0: those of the model, else no run */
  int64_t layers;
  const char* schedule; /* JSON; needs a run */
  const double* sigmas; /* sigma_count of them, one per step; needs a run */
  size_t sigma_count;
  const char* calibration; /* a checkpoint's, as JSON, for the layer of that name */
  const char* layer_name;
} fovea_explain_options;

/* What would run, as `fovea explain --format json` prints it; freed with fovea_string_free. */
FOVEA_C_API int32_t fovea_explain_with(const fovea_config* config,
                                       const fovea_explain_options* options, char** json,
                                       fovea_error** error);

/* The libcudnn to load instead of libcudnn.so.9 where the loader finds it. An error once another
 * one is loaded. */
FOVEA_C_API int32_t fovea_set_cudnn_library(const char* file, fovea_error** error);

/* Whether a backend runs on this machine's CPU or first GPU:
 * {"backend","state","provider","cause","install"} as JSON.
 */
FOVEA_C_API int32_t fovea_availability(const char* backend, char** json, fovea_error** error);

/* --- Plugins
 * ------------------------------------------------------------------------------------------------
 */

/* Loads a shared library of backends (fovea/plugin.h), which stays loaded, and puts them behind
 * their names. `json` may be NULL:
 * {"file","name","version","platforms":["name"],"packages":["name"],"accesses":["platform"],
 * "backends":[{"path","name","replaced"}]}. */
FOVEA_C_API int32_t fovea_load_plugin(const char* file, char** json, fovea_error** error);

/* Loads every libfovea-backend-*.so of the folders in FOVEA_PLUGIN_PATH. Failures are logged as
 * warnings and listed in `json` (may be NULL): {"loaded":[...],"failed":["..."]}; they are no error
 * here. */
FOVEA_C_API int32_t fovea_load_plugins_from_environment(char** json, fovea_error** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FOVEA_C_API_H_ */
