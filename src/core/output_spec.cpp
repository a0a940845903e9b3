#include "fovea/attention.hpp"
#include "src/core/checked_math.hpp"

namespace fovea {
namespace {

OutputSpec contiguous(DType dtype, std::vector<int64_t> shape) {
  OutputSpec spec{dtype, std::move(shape), {}};
  spec.strides.resize(spec.shape.size());
  int64_t step = 1;
  for (size_t axis = spec.shape.size(); axis-- > 0;) {
    spec.strides[axis] = step;
    step = saturating_multiply(step, std::max<int64_t>(spec.shape[axis], 1));
  }
  return spec;
}

}  // namespace

Result<OutputSpecs> output_spec(const Problem& p) {
  FOVEA_CHECK(validate(p));
  OutputSpecs specs;
  switch (p.out_layout) {
    case Layout::bshd:
      specs.out = contiguous(p.out_dtype, {p.batch, p.seq_q, p.heads_q, p.dim_v});
      break;
    case Layout::bhsd:
      specs.out = contiguous(p.out_dtype, {p.batch, p.heads_q, p.seq_q, p.dim_v});
      break;
    case Layout::packed:
      specs.out = contiguous(p.out_dtype, {p.seq_q, p.heads_q, p.dim_v});
      break;
  }
  specs.lse = p.layout == Layout::packed ? contiguous(kF32, {p.heads_q, p.seq_q})
                                         : contiguous(kF32, {p.batch, p.heads_q, p.seq_q});
  return specs;
}

}  // namespace fovea
