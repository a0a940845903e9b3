/* One attention call through the C interface: with q = k = 0 every key weighs the same, so the
 * output is the mean of v. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fovea/c_api.h"

enum { SEQ_Q = 3, SEQ_KV = 5, HEADS = 2, HEAD_DIM = 8 };

static float q[SEQ_Q * HEADS * HEAD_DIM];
static float k[SEQ_KV * HEADS * HEAD_DIM];
static float v[SEQ_KV * HEADS * HEAD_DIM];
static float out[SEQ_Q * HEADS * HEAD_DIM];

static fovea_tensor tensor(float* data, int64_t seq) {
  fovea_tensor result;
  memset(&result, 0, sizeof result);
  result.data = data;
  result.device_type = 1;
  result.dtype_code = 2;
  result.dtype_bits = 32;
  result.dtype_lanes = 1;
  result.rank = 4;
  result.shape[0] = 1;
  result.shape[1] = seq;
  result.shape[2] = HEADS;
  result.shape[3] = HEAD_DIM;
  result.stride[0] = seq * HEADS * HEAD_DIM;
  result.stride[1] = HEADS * HEAD_DIM;
  result.stride[2] = HEAD_DIM;
  result.stride[3] = 1;
  return result;
}

int main(void) {
  fovea_layer_options layer;
  fovea_call call;
  fovea_attention* attention = NULL;
  fovea_receipt* receipt = NULL;
  fovea_error* error = NULL;
  int i;

  for (i = 0; i < SEQ_KV * HEADS * HEAD_DIM; ++i) v[i] = (float)(i / (HEADS * HEAD_DIM));
  memset(&layer, 0, sizeof layer);
  layer.struct_size = sizeof layer;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.q = tensor(q, SEQ_Q);
  call.k = tensor(k, SEQ_KV);
  call.v = tensor(v, SEQ_KV);
  call.out = tensor(out, SEQ_Q);
  call.window_left = -1;
  call.window_right = -1;

  if (fovea_attention_create(&layer, NULL, &attention, &error) != FOVEA_OK ||
      fovea_attention_run(attention, &call, &receipt, &error) != FOVEA_OK) {
    fprintf(stderr, "attention failed: %s\n", fovea_error_message(error));
    fovea_error_free(error);
    fovea_attention_free(attention);
    return 1;
  }
  for (i = 0; i < SEQ_Q * HEADS * HEAD_DIM; ++i) {
    if (fabsf(out[i] - 2.0f) > 1e-6f) {
      fprintf(stderr, "element %d is %g, not 2\n", i, (double)out[i]);
      return 1;
    }
  }
  printf("fovea %s from C: %s\n", fovea_version(), fovea_receipt_json(receipt));
  fovea_receipt_free(receipt);
  fovea_attention_free(attention);
  return 0;
}
