/* The kernel of a package through the C interface: bound, judged, run and taken back. */
#include "fovea/c_api.h"
#include "fovea/plugin.h"

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

/* A record of a run that never took place: what such a file does is what is tested. */
static const char kRecord[] = "c_api_package_test_record.json";
static void write_record(const char* passes) {
  FILE* file = fopen(kRecord, "w");
  if (file == NULL) return;
  fprintf(
      file,
      "{\"schema\":\"fovea.validation/1\",\"backend\":\"FLASH_ATTN_4\",\"provider\":\"package fa4 "
      "4.0.0b36\",\"library\":\"package fa4 "
      "4.0.0b36\",\"platform\":\"cuda\",\"device_class\":\"sm_90\","
      "\"path\":\"fa4_dense\",\"device\":\"d\",\"driver\":\"1\",\"compiler\":\"c\",\"fovea\":\"%"
      "s\","
      "\"date\":\"2026-01-01\",\"atol\":0.01,\"rtol\":0.01,\"captured\":true,\"pass\":%s,\"cases\":"
      "["
      "{\"kind\":\"dense\",\"problem\":\"bf16 b1 h1 s4 d8\",\"path\":\"fa4_dense\",\"ran\":true,"
      "\"outside\":0,\"pass\":true},{\"kind\":\"replay\",\"problem\":\"bf16 b1 h1 s4 d8\","
      "\"path\":\"fa4_dense\",\"ran\":true,\"outside\":0,\"pass\":true}]}",
      fovea_version(), passes);
  fclose(file);
}

static int runs = 0;
static int32_t fail_with = 0;

static int32_t run(void* self, const fovea_package_call* call, const fovea_plugin_sink* sink) {
  EXPECT(self == &runs);
  EXPECT(strcmp(call->backend_name, "FLASH_ATTN_4") == 0);
  EXPECT(strcmp(call->path, "fa4_dense") == 0);
  EXPECT(call->problem->head_dim == 8 && call->problem->seq_q == 4);
  EXPECT(call->valid_queries == 4);
  if (fail_with != 0) {
    sink->set_message(sink, "the kernel is tired");
    return fail_with;
  }
  memset(call->run->out.data, 0, 4 * 8 * 2);
  ++runs;
  return FOVEA_OK;
}

static int32_t validate(void* self, int64_t head_dim, int64_t dim_v, int64_t alignment,
                        const fovea_plugin_sink* sink) {
  (void)self;
  if (head_dim % alignment == 0 && dim_v % alignment == 0) return FOVEA_OK;
  sink->set_message(sink, "multiples of eight, says the package");
  return 1;
}

static void refuse(void* self, const char* backend_name, const fovea_plugin_problem* problem,
                   const fovea_plugin_sink* sink) {
  (void)self;
  const fovea_plugin_reason reason = {sizeof reason, "mask", "mask", "a tensor", "none", "drop it"};
  EXPECT(backend_name[0] == 'F');
  if (problem->mask_kind != FOVEA_MASK_NONE) sink->add_reason(sink, &reason);
}

static fovea_tensor tensor(void* data, int64_t seq, int64_t dim, uint8_t code, uint8_t bits) {
  fovea_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device_type = 1;
  t.dtype_code = code;
  t.dtype_bits = bits;
  t.dtype_lanes = 1;
  t.rank = 4;
  t.shape[0] = t.shape[2] = 1, t.shape[1] = seq, t.shape[3] = dim;
  t.stride[3] = 1, t.stride[2] = t.stride[1] = dim, t.stride[0] = seq * dim;
  return t;
}

int main(void) {
  static uint16_t q[4 * 8], out[4 * 8];
  static uint8_t keys[4] = {1, 1, 0, 1};
  fovea_error* error = NULL;
  char* json = NULL;
  fovea_package package;
  memset(&package, 0, sizeof package);
  package.struct_size = sizeof package;
  package.package = "fa4";
  package.version = "4.0.0b36";
  package.self = &runs;
  package.validate_dims = validate;
  package.refuse = refuse;
  EXPECT(fovea_bind_package(&package, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "run") != NULL);
  fovea_error_free(error);
  package.run = run;
  /* Text is no record, and neither is a file that does not count. */
  package.validation_record = "a record";
  EXPECT(fovea_bind_package(&package, &error) == 120);
  fovea_error_free(error);
  write_record("false");
  package.validation_record = kRecord;
  EXPECT(fovea_bind_package(&package, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "does not pass") != NULL);
  fovea_error_free(error);
  write_record("true");
  EXPECT(fovea_bind_package(&package, NULL) == FOVEA_OK);

  fovea_config* config = NULL;
  fovea_attention* layer = NULL;
  fovea_layer_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.platform = "cuda";
  options.facts = "sm=ninety";
  EXPECT(fovea_config_create(NULL, "FLASH_ATTN_4", 0, &config, NULL) == FOVEA_OK);
  EXPECT(fovea_attention_create(&options, config, &layer, &error) == 112);
  fovea_error_free(error);
  options.facts = "sm=90,cuda=13.0,fa4=4.0.0";
  EXPECT(fovea_attention_create(&options, config, &layer, NULL) == FOVEA_OK);

  fovea_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.window_left = call.window_right = -1;
  call.q = call.k = call.v = tensor(q, 4, 8, 4, 16);
  call.out = tensor(out, 4, 8, 4, 16);
  EXPECT(fovea_attention_resolve(layer, &call, NULL, &json, NULL) == FOVEA_OK);
  EXPECT(strstr(json, "\"support\":\"supported\"") != NULL);
  EXPECT(strstr(json, "\"compilation_mode\":\"custom_op\"") != NULL);
  EXPECT(strstr(json, "package fa4 4.0.0b36") != NULL);
  fovea_string_free(json);
  memset(out, 0xff, sizeof out);
  EXPECT(fovea_attention_run(layer, &call, NULL, NULL) == FOVEA_OK);
  EXPECT(runs == 1 && out[0] == 0 && out[31] == 0);

  /* What the call struct has no words for. */
  fovea_metadata* metadata = NULL;
  EXPECT(fovea_metadata_create("{\"protected_kv_prefix\": 2}", &metadata, NULL) == FOVEA_OK);
  call.metadata = metadata;
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 200);
  EXPECT(strcmp(fovea_error_reason(error, 0).field, "protected_kv_prefix") == 0);
  fovea_error_free(error);
  call.metadata = NULL;
  fovea_metadata_free(metadata);
  EXPECT(runs == 1);

  fail_with = 400;
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 400);
  EXPECT(strstr(fovea_error_message(error), "the kernel is tired") != NULL);
  fovea_error_free(error);
  fail_with = 12345;
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 300);
  fovea_error_free(error);
  fail_with = 0;

  call.mask = tensor(keys, 1, 4, 1, 8);
  call.mask.rank = 2;
  call.mask.shape[1] = 4, call.mask.stride[1] = 1;
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 200);
  EXPECT(strcmp(fovea_error_reason(error, 0).remedy, "drop it") == 0);
  fovea_error_free(error);
  memset(&call.mask, 0, sizeof call.mask);
  call.q = call.k = call.v = tensor(q, 4, 6, 4, 16);
  call.out = tensor(out, 4, 6, 4, 16);
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 200);
  EXPECT(strstr(fovea_error_message(error), "says the package") != NULL);
  fovea_error_free(error);

  fovea_unbind_package("fa4");
  fovea_unbind_package("fa4");
  fovea_unbind_package(NULL);
  call.q = call.k = call.v = tensor(q, 4, 8, 4, 16);
  call.out = tensor(out, 4, 8, 4, 16);
  EXPECT(fovea_attention_run(layer, &call, NULL, &error) == 201);
  EXPECT(strcmp(fovea_error_reason(error, 0).code, "not_registered") == 0);
  fovea_error_free(error);
  EXPECT(runs == 1);
  fovea_attention_free(layer);

  /* A validation run says what is wrong with its arguments. */
  fovea_validation_options validation;
  memset(&validation, 0, sizeof validation);
  validation.struct_size = sizeof validation;
  EXPECT(fovea_validate_path(config, &validation, &json, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "device") != NULL);
  fovea_error_free(error);
  validation.device = "npu";
  EXPECT(fovea_validate_path(config, &validation, &json, &error) == 202);
  EXPECT(strstr(fovea_error_message(error), "fovea_device_access") != NULL);
  fovea_error_free(error);
  /* Each piece of software states its size, so that it may grow. */
  const fovea_software sound = {sizeof sound, "torch", "2.11"}, unsized = {0, "torch", "2.11"};
  const fovea_software* software[] = {&sound, &unsized};
  validation.device = "cpu";
  validation.software = software;
  validation.software_count = 2;
  EXPECT(fovea_validate_path(config, &validation, &json, &error) == 100);
  EXPECT(strstr(fovea_error_message(error), "struct_size") != NULL);
  fovea_error_free(error);
  validation.software_count = 0;
  validation.device = "npu:x";
  EXPECT(fovea_validate_path(config, &validation, &json, &error) == 100);
  fovea_error_free(error);
  remove(kRecord);
  fovea_config_free(config);
  return failures == 0 ? 0 : 1;
}
