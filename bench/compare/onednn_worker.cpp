// oneDNN's graph of scaled dot-product attention, [B,H,S,D] in and out (the layout it fuses).
// Build where oneDNN 3.x is installed, e.g. in a Debian 13 root:
//   g++ -std=c++20 -O2 -I. bench/compare/onednn_worker.cpp -ldnnl -o onednn_worker
#include <oneapi/dnnl/dnnl.hpp>
#include <oneapi/dnnl/dnnl_graph.hpp>

#include <cmath>
#include <cstring>
#include <memory>

#include "bench/compare/worker.hpp"

namespace {

using namespace dnnl::graph;
using Type = logical_tensor::data_type;
using Layout = logical_tensor::layout_type;

std::vector<char> as_type(const std::vector<float>& values, Type type) {
  if (type == Type::f32) {
    std::vector<char> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  std::vector<char> bytes(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    const uint16_t half = static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  return bytes;
}

struct Call {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<char> q, k, v, out, scale;
  compiled_partition kernel;
  std::vector<tensor> inputs, outputs;
};

// One partition of two matrix products, the scale and the softmax. `inner` is the type of scores.
std::shared_ptr<Call> make_call(const compare::Shape& shape, Type type, Type inner) {
  auto call = std::make_shared<Call>();
  const long width = shape.batch * shape.heads * shape.head_dim;
  call->q = as_type(compare::normal_values(width * shape.seq_q, 1), type);
  call->k = as_type(compare::normal_values(width * shape.seq_kv, 2), type);
  call->v = as_type(compare::normal_values(width * shape.seq_kv, 3), type);
  call->scale = as_type({std::sqrt(static_cast<float>(shape.head_dim))}, type);
  call->out.resize(call->q.size());

  const logical_tensor::dims q_size{shape.batch, shape.heads, shape.seq_q, shape.head_dim};
  const logical_tensor::dims k_size{shape.batch, shape.heads, shape.seq_kv, shape.head_dim};
  const logical_tensor::dims s_size{shape.batch, shape.heads, shape.seq_q, shape.seq_kv};
  const logical_tensor q(0, type, q_size, Layout::strided), k(1, type, k_size, Layout::strided);
  const logical_tensor v(2, type, k_size, Layout::strided), out(3, type, q_size, Layout::strided);
  const logical_tensor divisor(4, type, logical_tensor::dims{1}, Layout::strided);
  const logical_tensor score(5, inner, s_size, Layout::strided);
  const logical_tensor scaled(6, inner, s_size, Layout::strided);
  const logical_tensor weights(7, type, s_size, Layout::strided);

  op first(10, op::kind::MatMul, {q, k}, {score}, "scores");
  first.set_attr<bool>(op::attr::transpose_b, true);
  op divide(11, op::kind::Divide, {score, divisor}, {scaled}, "scale");
  op softmax(12, op::kind::SoftMax, {scaled}, {weights}, "softmax");
  softmax.set_attr<int64_t>(op::attr::axis, -1);
  op second(13, op::kind::MatMul, {weights, v}, {out}, "values");

  graph whole(dnnl::engine::kind::cpu);
  for (const op& o : {first, divide, softmax, second}) whole.add_op(o);
  whole.finalize();
  const std::vector<partition> partitions = whole.get_partitions();
  if (partitions.size() != 1) {
    throw std::runtime_error("not fused: " + std::to_string(partitions.size()) + " partitions");
  }
  std::vector<logical_tensor> in = partitions[0].get_input_ports();
  call->kernel = partitions[0].compile(in, {out}, call->engine);
  for (const logical_tensor& port : in) {
    std::vector<char>* const memory[] = {&call->q, &call->k, &call->v, nullptr, &call->scale};
    call->inputs.emplace_back(port, call->engine, memory[port.get_id()]->data());
  }
  call->outputs.emplace_back(out, call->engine, call->out.data());
  return call;
}

std::function<void()> prepare(const std::string& problem) {
  const compare::Shape shape = compare::parse_shape(problem);
  if (shape.dtype == "f16") throw std::runtime_error("not asked of this library");
  const Type type = shape.dtype == "bf16" ? Type::bf16 : Type::f32;
  std::shared_ptr<Call> call;
  try {
    call = make_call(shape, type, Type::f32);
  } catch (const std::exception&) {
    call = make_call(shape, type, type);
  }
  return [call] {
    call->kernel.execute(call->stream, call->inputs, call->outputs);
    call->stream.wait();
  };
}

}  // namespace

int main() { compare::serve(prepare); }
