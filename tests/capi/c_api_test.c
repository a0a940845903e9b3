/* The C interface used from C99: configuration, a call, a receipt, errors as data. Prints what
 * failed. */
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

static fovea_tensor tensor4(float* data, int64_t b, int64_t s, int64_t h, int64_t d) {
  fovea_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device_type = 1;
  t.dtype_code = 2;
  t.dtype_bits = 32;
  t.dtype_lanes = 1;
  t.rank = 4;
  t.shape[0] = b, t.shape[1] = s, t.shape[2] = h, t.shape[3] = d;
  t.stride[3] = 1, t.stride[2] = d, t.stride[1] = h * d, t.stride[0] = s * h * d;
  return t;
}

static fovea_call new_call(void) {
  fovea_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.window_left = call.window_right = -1;
  return call;
}

static fovea_attention* new_layer(const char* backend) {
  fovea_config* config = NULL;
  fovea_attention* layer = NULL;
  fovea_layer_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.threads = 1;
  EXPECT(fovea_config_create(NULL, backend, 0, &config, NULL) == FOVEA_OK);
  EXPECT(fovea_attention_create(&options, config, &layer, NULL) == FOVEA_OK);
  fovea_config_free(config);
  return layer;
}

/* q = k = 0 makes the weights uniform: out = mean(v), lse = ln 3. */
static void uniform_weights(void) {
  float zeros[3] = {0, 0, 0}, values[3] = {1, 2, 6}, out[3] = {NAN, NAN, NAN},
        lse[3] = {NAN, NAN, NAN};
  fovea_attention* layer = new_layer("REFERENCE");
  fovea_call call = new_call();
  fovea_tensor out_spec, lse_spec;
  fovea_receipt* receipt = NULL;
  call.q = tensor4(zeros, 1, 3, 1, 1);
  call.k = call.q;
  call.v = tensor4(values, 1, 3, 1, 1);
  EXPECT(fovea_output_spec(&call, &out_spec, &lse_spec, NULL) == FOVEA_OK);
  EXPECT(out_spec.rank == 4 && out_spec.shape[1] == 3 && out_spec.dtype_bits == 32);
  EXPECT(lse_spec.rank == 3 && lse_spec.shape[0] == 1 && lse_spec.shape[1] == 1 &&
         lse_spec.shape[2] == 3);
  call.out = out_spec;
  call.out.data = out;
  call.lse = lse_spec;
  call.lse.data = lse;
  EXPECT(fovea_attention_run(layer, &call, &receipt, NULL) == FOVEA_OK);
  EXPECT(out[0] == 3.0f && out[1] == 3.0f && out[2] == 3.0f);
  EXPECT(fabs(lse[0] - log(3.0)) < 1e-6);
  EXPECT(strstr(fovea_receipt_json(receipt), "\"backend\":\"REFERENCE\"") != NULL);
  fovea_receipt_free(receipt);

  fovea_plan* plan = NULL;
  char memory[8192];
  const size_t bytes = 4096;
  char* workspace = memory + (256 - (uintptr_t)memory % 256); /* plans want 256-byte alignment */
  call.is_causal = 1, call.has_is_causal = 1;
  EXPECT(fovea_attention_plan(layer, &call, &plan, NULL) == FOVEA_OK);
  EXPECT(fovea_plan_workspace_bytes(plan) <= bytes);
  EXPECT(fovea_plan_run(plan, &call, workspace, bytes, NULL) == FOVEA_OK);
  EXPECT(out[0] == 1.0f && out[1] == 1.5f && out[2] == 3.0f);
  call.has_is_causal = 0;
  fovea_error* error = NULL;
  EXPECT(fovea_plan_run(plan, &call, workspace, bytes, &error) == 121);
  EXPECT(strstr(fovea_error_message(error), "make a plan for it") != NULL);
  fovea_error_free(error);
  fovea_plan_free(plan);
  fovea_attention_free(layer);
}

/* A plan follows the configuration's causal flag, as a run does; the call's own flag beats it. */
static void plans_follow_the_configuration(void) {
  float zeros[2] = {0, 0}, values[2] = {1, 3}, out[2];
  char memory[8192];
  char* workspace = memory + (256 - (uintptr_t)memory % 256);
  fovea_config* config = NULL;
  fovea_attention* layer = NULL;
  fovea_plan* plan = NULL;
  fovea_layer_options options;
  fovea_call call = new_call();
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.threads = 1;
  EXPECT(fovea_config_create("{\"default\": {\"backend\": \"REFERENCE\", \"is_causal\": true}}",
                             NULL, 0, &config, NULL) == FOVEA_OK);
  EXPECT(fovea_attention_create(&options, config, &layer, NULL) == FOVEA_OK);
  call.q = call.k = tensor4(zeros, 1, 2, 1, 1);
  call.v = tensor4(values, 1, 2, 1, 1);
  call.out = tensor4(out, 1, 2, 1, 1);
  for (int explicit_full = 0; explicit_full < 2; ++explicit_full) {
    call.has_is_causal = explicit_full;
    out[0] = out[1] = NAN;
    EXPECT(fovea_attention_plan(layer, &call, &plan, NULL) == FOVEA_OK);
    EXPECT(fovea_plan_run(plan, &call, workspace, 4096, NULL) == FOVEA_OK);
    EXPECT(out[0] == (explicit_full ? 2.0f : 1.0f) && out[1] == 2.0f);
    fovea_plan_free(plan);
  }
  fovea_attention_free(layer);
  fovea_config_free(config);
}

static void errors_are_data(void) {
  fovea_error* error = NULL;
  fovea_config* config = NULL;
  EXPECT(fovea_config_create("{\"default\": \"FLASH_ATN\"}", NULL, 0, &config, &error) == 110);
  EXPECT(config == NULL);
  EXPECT(fovea_error_code(error) == 110);
  EXPECT(strcmp(fovea_error_code_name(110), "invalid_config") == 0);
  EXPECT(strstr(fovea_error_message(error), "FLASH_ATTN") != NULL);
  fovea_error_free(error);
  error = NULL;

  EXPECT(fovea_config_create(NULL, NULL, 0, NULL, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "config is NULL") != NULL);
  fovea_error_free(error);
  error = NULL;

  float data[600] = {0};
  fovea_attention* layer = new_layer("FLASH_ATTN");
  fovea_call call = new_call();
  call.q = call.k = call.v = tensor4(data, 1, 1, 1, 600);
  call.out = tensor4(data, 1, 1, 1, 600);
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) != FOVEA_OK); /* out overlaps q */
  EXPECT(strstr(fovea_error_message(error), "overlap") != NULL);
  fovea_error_free(error);
  error = NULL;

  float out[600];
  call.out = tensor4(out, 1, 1, 1, 600);
  const int32_t code = fovea_attention_run(layer, &call, NULL, &error);
  EXPECT(code == 200);
  EXPECT(fovea_error_reason_count(error) >= 1);
  EXPECT(strcmp(fovea_error_reason(error, 0).code, "head_dim") == 0);
  EXPECT(strcmp(fovea_error_reason(error, 0).got, "600") == 0);
  EXPECT(strcmp(fovea_error_reason(error, 99).code, "") == 0);
  fovea_error_free(error);
  error = NULL;

  call.struct_size = 0;
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "struct_size") != NULL);
  fovea_error_free(error);
  error = NULL;
  /* A caller built against a smaller struct: the fields behind its end are absent. */
  call = new_call();
  call.q = call.k = call.v = tensor4(data, 1, 1, 1, 8);
  call.out = tensor4(out, 1, 1, 1, 8);
  call.window_left = call.window_right = 12345;
  call.struct_size = offsetof(fovea_call, window_left);
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == FOVEA_OK);
  fovea_error_free(error);
  fovea_attention_free(layer);
}

static void explain_and_availability(void) {
  char* json = NULL;
  fovea_error* error = NULL;
  EXPECT(fovea_explain(NULL, NULL, NULL, "self", NULL, "f32 b1 h4 s128 d64", &json, &error) ==
         FOVEA_OK);
  EXPECT(json != NULL && strstr(json, "fovea.explain/1") != NULL &&
         strstr(json, "FLASH_ATTN") != NULL);
  fovea_string_free(json);
  json = NULL;
  EXPECT(fovea_explain(NULL, "npu:4096", NULL, NULL, NULL, NULL, &json, &error) == 300);
  EXPECT(strstr(fovea_error_message(error), "this machine has no npu:4096") != NULL);
  fovea_error_free(error);
  EXPECT(fovea_explain(NULL, "cuda", "sm=nine", NULL, NULL, NULL, &json, &error) == 112);
  EXPECT(json == NULL);
  fovea_error_free(error);
  error = NULL;
  EXPECT(fovea_availability("FLASH_ATTN", &json, &error) == FOVEA_OK);
  EXPECT(json != NULL && strstr(json, "\"state\":\"runs here\"") != NULL);
  fovea_string_free(json);
  json = NULL;
  EXPECT(fovea_availability("FLASH_ATTN_3", &json, &error) == FOVEA_OK);
  EXPECT(json != NULL && strstr(json, "\"state\":\"not for this device\"") != NULL);
  fovea_string_free(json);
  json = NULL;
  EXPECT(fovea_explain_run(NULL,
                           "{\"profiles\": {\"exact\": \"SDPA\"},"
                           " \"steps\": [{\"start\": 0, \"end\": 1, \"profile\": \"exact\"}]}",
                           NULL, NULL, "self", NULL, NULL, 4, 2, &json, &error) == FOVEA_OK);
  EXPECT(json != NULL && strstr(json, "\"steps\":\"1-3\"") != NULL &&
         strstr(json, "profile 'exact'") != NULL);
  fovea_string_free(json);
  json = NULL;
  {
    const double sigmas[] = {1.0, 0.4};
    const char* schedule =
        "{\"profiles\": {\"low\": \"TORCH_SDPA\"}, "
        "\"sigma\": [{\"low\": 0, \"high\": 0.5, \"profile\": \"low\"}]}";
    EXPECT(fovea_explain_sigmas(NULL, schedule, NULL, NULL, NULL, NULL, NULL, sigmas, 2, 1, &json,
                                &error) == FOVEA_OK);
    EXPECT(strstr(json, "\"profile\":\"low\"") != NULL);
    fovea_string_free(json);
    json = NULL;
    EXPECT(fovea_explain_sigmas(NULL, schedule, NULL, NULL, NULL, NULL, NULL, NULL, 2, 1, &json,
                                &error) == 100);
    fovea_error_free(error);
    EXPECT(fovea_explain_sigmas(NULL, schedule, NULL, NULL, NULL, NULL, NULL, sigmas, INT64_MAX, 1,
                                &json, &error) == 110);
    fovea_error_free(error);
  }
  EXPECT(fovea_explain_run(NULL, "{\"stps\": []}", NULL, NULL, NULL, NULL, NULL, 4, 2, &json,
                           &error) == 110);
  EXPECT(json == NULL && strstr(fovea_error_message(error), "steps") != NULL);
  fovea_error_free(error);
  error = NULL;
}

/* A device preset, and the roles of a model. */
static void explain_of_a_model(void) {
  char* json = NULL;
  fovea_error* error = NULL;
  fovea_config* config = NULL;
  fovea_explain_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  EXPECT(fovea_config_create("{\"per_role\": {\"cross\": \"SDPA\"}}", NULL, 0, &config, NULL) ==
         FOVEA_OK);
  options.device = "h200";
  options.model = "wan2.1-t2v-14b";
  EXPECT(fovea_explain_with(config, &options, &json, &error) == FOVEA_OK);
  EXPECT(strstr(json, "\"role\":\"wan.self\"") != NULL);
  EXPECT(strstr(json, "\"role\":\"wan.cross.text\"") != NULL);
  EXPECT(strstr(json, "\"problem\":\"bf16 b1 h40 s75600 d128\"") != NULL);
  EXPECT(strstr(json, "\"steps\":\"0-49\"") != NULL);
  EXPECT(strstr(json, "\"backend\":\"TORCH_SDPA\"") != NULL);
  fovea_string_free(json);
  json = NULL;
  options.height = 480;
  options.width = 832;
  options.role = "wan.self";
  options.steps = 3;
  EXPECT(fovea_explain_with(NULL, &options, &json, &error) == FOVEA_OK);
  EXPECT(strstr(json, "s32760") != NULL && strstr(json, "wan.cross") == NULL);
  EXPECT(strstr(json, "\"steps\":\"0-2\"") != NULL);
  fovea_string_free(json);
  json = NULL;
  options.problem = "f32 b1 h1 s1 d1";
  EXPECT(fovea_explain_with(NULL, &options, &json, &error) == 100);
  EXPECT(json == NULL && strstr(fovea_error_message(error), "problem or a model") != NULL);
  fovea_error_free(error);
  options.problem = NULL;
  options.model = "wan2.1-t2v-15b";
  EXPECT(fovea_explain_with(NULL, &options, &json, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "wan2.1-t2v-14b") != NULL);
  fovea_error_free(error);
  options.model = NULL;
  EXPECT(fovea_explain_with(NULL, &options, &json, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "those of a model") != NULL);
  fovea_error_free(error);
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.schedule = "{\"profiles\": {\"a\": \"SDPA\"}}";
  EXPECT(fovea_explain_with(NULL, &options, &json, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "need steps") != NULL);
  fovea_error_free(error);
  options.schedule = NULL;
  options.device = "h200";
  options.facts = "cudnn=9.14.0";
  options.problem = "bf16 b1 h1 s64 d64";
  EXPECT(fovea_explain_with(NULL, &options, &json, NULL) == FOVEA_OK);
  EXPECT(strstr(json, "\"cudnn\":\"9.14.0\"") != NULL && strstr(json, "\"sm\":\"90\"") != NULL);
  fovea_string_free(json);
  options.struct_size = 0;
  EXPECT(fovea_explain_with(NULL, &options, &json, &error) == 100);
  fovea_error_free(error);
  fovea_config_free(config);
}

/* A problem without a role is asked of the default and of every per_role entry. */
static void explain_of_a_problem(void) {
  char* json = NULL;
  fovea_config* config = NULL;
  EXPECT(fovea_config_create("{\"per_role\": {\"cross\": \"SDPA\"}}", NULL, 0, &config, NULL) ==
         FOVEA_OK);
  EXPECT(fovea_explain(config, NULL, NULL, NULL, NULL, "f32 b1 h4 s128 d64", &json, NULL) ==
         FOVEA_OK);
  EXPECT(strstr(json, "\"role\":\"default\"") != NULL);
  EXPECT(strstr(json, "\"role\":\"cross\"") != NULL);
  fovea_string_free(json);
  fovea_config_free(config);
}

/* Where the run stands is an argument of a call; only skip_softmax reads it. */
static void timesteps(void) {
  float zeros[4] = {0, 0, 0, 0}, out[4];
  fovea_attention* layer = new_layer(NULL);
  fovea_error* error = NULL;
  fovea_receipt* receipt = NULL;
  fovea_call call = new_call();
  call.q = call.k = call.v = tensor4(zeros, 1, 4, 1, 1);
  call.out = tensor4(out, 1, 4, 1, 1);
  call.timestep = 0.5;
  call.has_timestep = 1;
  EXPECT(fovea_attention_run(layer, &call, &receipt, NULL) == FOVEA_OK);
  EXPECT(strstr(fovea_receipt_json(receipt), "\"skip_softmax\":null") != NULL);
  fovea_receipt_free(receipt);
  call.timestep = 500;
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 100);
  EXPECT(strcmp(fovea_error_reason(error, 0).field, "timestep") == 0);
  fovea_error_free(error);
  fovea_attention_free(layer);
}

/* Two streams of tokens as one sequence: with q = k = 0 every output is the mean of all values. */
static void joint_tokens(void) {
  float zeros[6] = {0, 0, 0, 0, 0, 0}, own[3] = {1, 2, 3}, text[2] = {7, 12}, out[5], lse[5];
  fovea_attention* layer = new_layer("REFERENCE");
  fovea_error* error = NULL;
  fovea_receipt* receipt = NULL;
  fovea_call call = new_call();
  fovea_joint_tokens joint;
  memset(&joint, 0, sizeof joint);
  joint.struct_size = sizeof joint;
  call.q = call.k = tensor4(zeros, 1, 3, 1, 1);
  call.v = tensor4(own, 1, 3, 1, 1);
  joint.q = joint.k = tensor4(zeros, 1, 2, 1, 1);
  joint.v = tensor4(text, 1, 2, 1, 1);
  call.out = tensor4(out, 1, 5, 1, 1);
  EXPECT(fovea_attention_run_jointly(layer, &call, &joint, &receipt, &error) == FOVEA_OK);
  for (int i = 0; i < 5; ++i) EXPECT(out[i] == 5.0f);
  EXPECT(strstr(fovea_receipt_json(receipt), "\"copies\":[\"q\",\"k\",\"v\"]") != NULL);
  fovea_receipt_free(receipt);
  /* Causal shows the order of the tokens. */
  call.is_causal = call.has_is_causal = 1;
  EXPECT(fovea_attention_run_jointly(layer, &call, &joint, NULL, NULL) == FOVEA_OK);
  EXPECT(out[0] == 7.0f && out[1] == 9.5f && out[4] == 5.0f);
  joint.strategy = "rear";
  EXPECT(fovea_attention_run_jointly(layer, &call, &joint, NULL, NULL) == FOVEA_OK);
  EXPECT(out[0] == 1.0f && out[1] == 1.5f && out[4] == 5.0f);
  call.lse = tensor4(lse, 1, 1, 5, 1);
  call.lse.rank = 3;
  EXPECT(fovea_attention_run_jointly(layer, &call, &joint, NULL, NULL) == FOVEA_OK);
  EXPECT(lse[0] == 0.0f && lse[4] > 1.6f && lse[4] < 1.61f);
  joint.strategy = "middle";
  EXPECT(fovea_attention_run_jointly(layer, &call, &joint, NULL, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "front, rear") != NULL);
  fovea_error_free(error);
  joint.strategy = NULL;
  joint.v.rank = 0;
  EXPECT(fovea_attention_run_jointly(layer, &call, &joint, NULL, &error) == 121);
  EXPECT(strstr(fovea_error_message(error), "joint v is missing") != NULL);
  fovea_error_free(error);
  EXPECT(fovea_attention_run_jointly(layer, &call, NULL, NULL, &error) == 100);
  fovea_error_free(error);
  fovea_attention_free(layer);
}

/* Metadata is part of a call: of its run, its plan and its report. */
static void metadata_and_reports(void) {
  float zeros[6] = {0, 0, 0, 0, 0, 0}, values[6] = {1, 3, 5, 7, 9, 11}, out[6];
  char memory[16384];
  char* workspace = memory + (256 - (uintptr_t)memory % 256);
  fovea_attention* layer = new_layer("REFERENCE");
  fovea_metadata* metadata = NULL;
  fovea_plan* plan = NULL;
  fovea_error* error = NULL;
  char* json = NULL;
  fovea_surroundings around;
  fovea_call call = new_call();
  memset(&around, 0, sizeof around);
  around.struct_size = sizeof around;
  call.q = call.k = tensor4(zeros, 1, 6, 1, 1);
  call.v = tensor4(values, 1, 6, 1, 1);
  call.out = tensor4(out, 1, 6, 1, 1);

  EXPECT(fovea_metadata_create("{\"packed_padding\": {\"q_length\": 2, \"kv_length\": 3}}",
                               &metadata, NULL) == FOVEA_OK);
  call.metadata = metadata;
  EXPECT(fovea_attention_run(layer, &call, NULL, NULL) == FOVEA_OK);
  EXPECT(out[0] == 3.0f && out[1] == 3.0f && out[2] == 0.0f && out[5] == 0.0f);
  EXPECT(fovea_attention_plan(layer, &call, &plan, NULL) == FOVEA_OK);
  fovea_metadata_free(metadata);
  EXPECT(fovea_metadata_create("{\"packed_padding\": {\"q_length\": 1, \"kv_length\": 2}}",
                               &metadata, NULL) == FOVEA_OK);
  call.metadata = metadata;
  /* The lengths are values of the call; the plan is the same. */
  EXPECT(fovea_plan_workspace_bytes(plan) <= 8192);
  EXPECT(fovea_plan_run(plan, &call, workspace, 8192, NULL) == FOVEA_OK);
  EXPECT(out[0] == 2.0f && out[1] == 0.0f);
  fovea_plan_free(plan);

  EXPECT(fovea_attention_resolve(layer, &call, NULL, &json, NULL) == FOVEA_OK);
  EXPECT(strstr(json, "\"support\":\"supported\"") != NULL);
  EXPECT(strstr(json, "\"path\":\"cpu.reference\"") != NULL);
  fovea_string_free(json);
  around.parallel_strategy = "ring";
  around.outer_boundaries = "hsdp, attention_schedule";
  around.require_fullgraph = 1;
  EXPECT(fovea_attention_resolve(layer, &call, &around, &json, NULL) == FOVEA_OK);
  EXPECT(strstr(json, "\"support\":\"unmigrated\"") != NULL);
  EXPECT(strstr(json, "\"parallel_strategy\":\"ring\"") != NULL);
  EXPECT(strstr(json, "\"requested\":{\"status\":\"unsupported\"") != NULL);
  fovea_string_free(json);
  around.parallel_strategy = "star";
  EXPECT(fovea_attention_resolve(layer, &call, &around, &json, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "hybrid_ulysses_ring") != NULL);
  fovea_error_free(error);
  fovea_metadata_free(metadata);

  metadata = NULL;
  EXPECT(fovea_metadata_create("{\"valid_kv_lenght\": 3}", &metadata, &error) == 110);
  EXPECT(metadata == NULL);
  EXPECT(strstr(fovea_error_message(error), "did you mean 'valid_kv_length'?") != NULL);
  fovea_error_free(error);
  /* A contradiction is an error of the run and an answer of the report. */
  EXPECT(fovea_metadata_create("{\"valid_kv_length\": 7}", &metadata, NULL) == FOVEA_OK);
  call.metadata = metadata;
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 100);
  EXPECT(strcmp(fovea_error_reason(error, 0).field, "valid_kv_length") == 0);
  fovea_error_free(error);
  EXPECT(fovea_attention_resolve(layer, &call, NULL, &json, NULL) == FOVEA_OK);
  EXPECT(strstr(json, "\"code\":\"metadata\",\"field\":\"valid_kv_length\"") != NULL);
  fovea_string_free(json);
  fovea_metadata_free(metadata);
  fovea_attention_free(layer);
}

int main(void) {
  EXPECT(fovea_c_api_version() == FOVEA_C_API_VERSION);
  EXPECT(strlen(fovea_version()) >= 5);
  uniform_weights();
  plans_follow_the_configuration();
  errors_are_data();
  explain_and_availability();
  explain_of_a_model();
  explain_of_a_problem();
  timesteps();
  joint_tokens();
  metadata_and_reports();
  fovea_metadata_free(NULL);
  fovea_error_free(NULL);
  fovea_config_free(NULL);
  fovea_attention_free(NULL);
  fovea_plan_free(NULL);
  fovea_receipt_free(NULL);
  fovea_string_free(NULL);
  return failures == 0 ? 0 : 1;
}
