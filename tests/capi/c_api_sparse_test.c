/* Block masks and sparse states through the C interface, and what plans tell of themselves. */
#include "fovea/c_api.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

#define EXPECT(condition)                                              \
  do {                                                                 \
    if (!(condition)) {                                                \
      printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                      \
    }                                                                  \
  } while (0)

enum { kTokens = 256, kBlocks = 4 };

static float zeros[kTokens], values[kTokens], out[kTokens];
static char memory[1 << 20];

static fovea_tensor tokens(float* data) {
  fovea_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device_type = 1;
  t.dtype_code = 2;
  t.dtype_bits = 32;
  t.dtype_lanes = 1;
  t.rank = 4;
  t.shape[0] = t.shape[2] = t.shape[3] = 1, t.shape[1] = kTokens;
  t.stride[0] = kTokens, t.stride[1] = t.stride[2] = t.stride[3] = 1;
  return t;
}

/* q = k = 0, v[j] = j: the output is the mean index of the visible keys. */
static fovea_call new_call(void) {
  fovea_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.window_left = call.window_right = -1;
  call.q = call.k = tokens(zeros);
  call.v = tokens(values);
  call.out = tokens(out);
  for (int i = 0; i < kTokens; ++i) {
    values[i] = (float)i;
    out[i] = NAN;
  }
  return call;
}

static fovea_attention* new_layer(const fovea_config* config) {
  fovea_attention* layer = NULL;
  fovea_layer_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.threads = 1;
  EXPECT(fovea_attention_create(&options, config, &layer, NULL) == FOVEA_OK);
  return layer;
}

static fovea_config* new_config(const char* json, const char* backend) {
  fovea_config* config = NULL;
  EXPECT(fovea_config_create(json, backend, 0, &config, NULL) == FOVEA_OK);
  return config;
}

/* Rows of blocks read: block 0; blocks 1 and 3; all; none. */
static void block_masks(void) {
  const uint8_t matrix[kBlocks * kBlocks] = {1, 0, 0, 0, 0, 1, 0, 7, 1, 1, 1, 1, 0, 0, 0, 0};
  const float mean[kBlocks] = {31.5f, 159.5f, 127.5f, 0.0f};
  fovea_block_mask* mask = NULL;
  fovea_error* error = NULL;
  fovea_block_shape shape, told;
  fovea_tensor counts, indices, partial;
  memset(&shape, 0, sizeof shape);
  shape.struct_size = sizeof shape;
  shape.seq_q = shape.seq_kv = kTokens;
  shape.block_q = shape.block_kv = 64;
  EXPECT(fovea_block_mask_create(&shape, matrix, 15, &mask, &error) == 100);
  EXPECT(mask == NULL && strlen(fovea_error_message(error)) > 0);
  fovea_error_free(error);
  EXPECT(fovea_block_mask_create(&shape, matrix, sizeof matrix, &mask, NULL) == FOVEA_OK);
  EXPECT(fovea_block_mask_density(mask) == 7.0 / 16);
  memset(&told, 0, sizeof told);
  told.struct_size = sizeof told;
  EXPECT(fovea_block_mask_lists(mask, &told, &counts, &indices, &partial, NULL) == FOVEA_OK);
  EXPECT(told.struct_size == sizeof told && told.seq_kv == kTokens && told.block_q == 64 &&
         told.batch == 1 && told.heads == 1);
  EXPECT(counts.rank == 3 && counts.shape[2] == kBlocks && counts.dtype_code == 0 &&
         counts.dtype_bits == 32);
  EXPECT(indices.rank == 4 && indices.shape[3] == kBlocks && indices.stride[2] == kBlocks);
  EXPECT(partial.rank == 0);
  const int32_t* count = (const int32_t*)counts.data;
  const int32_t* index = (const int32_t*)indices.data;
  EXPECT(count[0] == 1 && count[1] == 2 && count[2] == 4 && count[3] == 0);
  EXPECT(index[4] == 1 && index[5] == 3 && index[6] == -1);

  fovea_config* config = new_config(
      "{\"default\": {\"backend\": \"BLOCK_SPARSE_ATTN\", \"block_sparse\": {\"selection\": "
      "\"mask\"}}}",
      NULL);
  fovea_attention* layer = new_layer(config);
  for (int as_tensors = 0; as_tensors < 2; ++as_tensors) {
    fovea_call call = new_call();
    fovea_receipt* receipt = NULL;
    if (as_tensors) {
      call.block_counts = counts;
      call.block_indices = indices;
      call.block_q = call.block_kv = 64;
    } else {
      call.block_mask = mask;
    }
    EXPECT(fovea_attention_run(layer, &call, &receipt, NULL) == FOVEA_OK);
    int wrong = 0;
    for (int i = 0; i < kTokens; ++i) wrong += !(fabsf(out[i] - mean[i / 64]) < 1e-3f);
    EXPECT(wrong == 0);
    EXPECT(strstr(fovea_receipt_json(receipt), "BLOCK_SPARSE_ATTN") != NULL);
    fovea_receipt_free(receipt);

    fovea_plan* plan = NULL;
    char* text = NULL;
    const int32_t code = fovea_attention_plan(layer, &call, &plan, &error);
    if (!as_tensors) {
      EXPECT(code == 100 && strstr(fovea_error_message(error), "block_counts") != NULL);
      fovea_error_free(error);
      continue;
    }
    EXPECT(code == FOVEA_OK);
    EXPECT(fovea_plan_problem(plan, &text, NULL) == FOVEA_OK);
    EXPECT(strstr(text, "f32 b1 h1 s256 d1") != NULL);
    fovea_string_free(text);
    EXPECT(fovea_plan_receipt(plan, &receipt, NULL) == FOVEA_OK);
    EXPECT(strstr(fovea_receipt_json(receipt), "BLOCK_SPARSE_ATTN") != NULL);
    fovea_receipt_free(receipt);
    call = new_call();
    call.block_counts = counts;
    call.block_indices = indices;
    call.block_q = call.block_kv = 64;
    EXPECT(fovea_plan_workspace_bytes(plan) < sizeof memory - 256);
    EXPECT(fovea_plan_run(plan, &call, memory + (256 - (uintptr_t)memory % 256),
                          sizeof memory - 256, NULL) == FOVEA_OK);
    EXPECT(fabsf(out[64] - mean[1]) < 1e-3f && out[255] == 0.0f);
    fovea_plan_free(plan);
  }
  fovea_attention_free(layer);
  fovea_config_free(config);
  fovea_block_mask_free(mask);
}

static void states(void) {
  fovea_config* config = new_config(
      "{\"default\": {\"backend\": \"RADIAL_ATTN\", \"radial\": {\"dense_timesteps\": 2,"
      " \"dense_layers\": 1, \"block_size\": 64, \"decay_factor\": 0.25}}}",
      NULL);
  fovea_mask_map* map = NULL;
  fovea_sparse_state* state = NULL;
  fovea_error* error = NULL;
  int64_t step = -1, layer_idx = -1;
  EXPECT(fovea_mask_map_create(kTokens, 3, 0, 0, &map, &error) == 100);
  fovea_error_free(error);
  EXPECT(fovea_mask_map_create(kTokens, 4, 0, 0, &map, NULL) == FOVEA_OK);
  fovea_config* dense = new_config(NULL, "FLASH_ATTN");
  EXPECT(fovea_sparse_state_create(dense, NULL, NULL, map, NULL, &state, &error) == 110);
  EXPECT(strstr(fovea_error_message(error), "RADIAL_ATTN") != NULL);
  fovea_error_free(error);
  fovea_config_free(dense);
  fovea_config* nothing = new_config(NULL, NULL);
  EXPECT(fovea_sparse_state_create(nothing, "cross", NULL, map, NULL, &state, &error) == 110);
  EXPECT(strstr(fovea_error_message(error), "cross") != NULL);
  fovea_error_free(error);
  fovea_config_free(nothing);
  EXPECT(fovea_sparse_state_create(config, NULL, NULL, map, "sora", &state, &error) == 100);
  fovea_error_free(error);
  EXPECT(fovea_sparse_state_create(config, NULL, NULL, map, NULL, &state, NULL) == FOVEA_OK);
  fovea_mask_map_free(map);

  EXPECT(fovea_sparse_state_begin_run(state, 4, 2, NULL) == FOVEA_OK);
  EXPECT(fovea_sparse_state_should_use_dense(state) == 1);
  EXPECT(strcmp(fovea_sparse_state_dense_cause(state), "first_steps") == 0);
  EXPECT(strcmp(fovea_sparse_state_sparsity_type(state), "dense") == 0);
  EXPECT(strcmp(fovea_sparse_state_dense_backend(state), "FLASH_ATTN") == 0);
  EXPECT(fovea_sparse_state_update(state, 2, -1, NULL) == FOVEA_OK);
  EXPECT(strcmp(fovea_sparse_state_dense_cause(state), "first_layers") == 0);
  EXPECT(fovea_sparse_state_update(state, -2, 1, &error) == 100);
  fovea_error_free(error);
  EXPECT(fovea_sparse_state_update(state, -1, 1, NULL) == FOVEA_OK);
  fovea_sparse_state_position(state, &step, &layer_idx);
  EXPECT(step == 2 && layer_idx == 1);
  EXPECT(fovea_sparse_state_should_use_dense(state) == 0);
  EXPECT(strcmp(fovea_sparse_state_sparsity_type(state), "radial") == 0);

  fovea_block_mask* mask = NULL;
  EXPECT(fovea_sparse_state_mask(state, 100, &mask, &error) == 100);
  fovea_error_free(error);
  EXPECT(fovea_sparse_state_mask(state, kTokens, &mask, NULL) == FOVEA_OK);
  fovea_tensor counts, indices;
  EXPECT(fovea_block_mask_lists(mask, NULL, &counts, &indices, NULL, NULL) == FOVEA_OK);
  const int32_t* count = (const int32_t*)counts.data;
  const int32_t* index = (const int32_t*)indices.data;

  /* A run, and plans that keep the decision of their time. */
  fovea_attention* layer = new_layer(config);
  fovea_call call = new_call();
  call.sparse_state = state;
  fovea_plan* sparse_plan = NULL;
  fovea_receipt* receipt = NULL;
  EXPECT(fovea_attention_run(layer, &call, NULL, NULL) == FOVEA_OK);
  for (int row = 0; row < kBlocks; ++row) {
    float mean = 0;
    for (int i = 0; i < count[row]; ++i)
      mean += ((float)index[row * indices.shape[3] + i] * 64 + 31.5f) / (float)count[row];
    EXPECT(fabsf(out[row * 64] - mean) < 1e-3f);
  }
  const float sparse_row = out[kTokens - 1];
  EXPECT(fovea_attention_plan(layer, &call, &sparse_plan, NULL) == FOVEA_OK);
  EXPECT(fovea_sparse_state_fix(state, "soon", &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "first_steps") != NULL);
  fovea_error_free(error);
  EXPECT(fovea_sparse_state_fix(state, "first_steps", NULL) == FOVEA_OK);
  EXPECT(fovea_sparse_state_should_use_dense(state) == 1);
  EXPECT(fovea_attention_run(layer, &call, &receipt, NULL) == FOVEA_OK);
  EXPECT(strstr(fovea_receipt_json(receipt), "\"scheduled_dense\":true") != NULL);
  EXPECT(fabsf(out[kTokens - 1] - 127.5f) < 1e-3f);
  fovea_receipt_free(receipt);
  out[kTokens - 1] = NAN;
  EXPECT(fovea_plan_run(sparse_plan, &call, memory + (256 - (uintptr_t)memory % 256),
                        sizeof memory - 256, NULL) == FOVEA_OK);
  EXPECT(out[kTokens - 1] == sparse_row);
  fovea_plan_free(sparse_plan);

  char* json = NULL;
  EXPECT(fovea_attention_resolve(layer, &call, NULL, &json, NULL) == FOVEA_OK);
  EXPECT(strstr(json, "\"backend\":\"FLASH_ATTN\"") != NULL);
  fovea_string_free(json);
  EXPECT(fovea_sparse_state_fix(state, "none", NULL) == FOVEA_OK);
  EXPECT(fovea_attention_resolve(layer, &call, NULL, &json, NULL) == FOVEA_OK);
  EXPECT(strstr(json, "\"backend\":\"RADIAL_ATTN\"") != NULL);
  EXPECT(strstr(json, "\"support\":\"supported\"") != NULL);
  fovea_string_free(json);

  /* An older caller's struct ends before the state. */
  call.struct_size = offsetof(fovea_call, sparse_state);
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 200);
  EXPECT(strcmp(fovea_error_reason(error, 0).code, "sparse_state") == 0);
  fovea_error_free(error);
  fovea_attention_free(layer);
  fovea_block_mask_free(mask);
  fovea_sparse_state_free(state);
  fovea_config_free(config);
}

int main(void) {
  block_masks();
  states();
  fovea_mask_map_free(NULL);
  fovea_sparse_state_free(NULL);
  fovea_block_mask_free(NULL);
  EXPECT(fovea_sparse_state_should_use_dense(NULL) == 1);
  EXPECT(fovea_block_mask_density(NULL) == 0);
  return failures == 0 ? 0 : 1;
}
