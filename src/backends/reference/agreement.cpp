#include "src/backends/reference/agreement.hpp"

#include "src/core/element.hpp"

namespace fovea::backends::reference {

Agreement compare_to_oracle(const Problem& p, const AttentionTensors& t, const Oracle& oracle,
                            DataKind data) {
  Agreement a;
  a.tolerance = exact_tolerance(p.dtype, p.out_dtype, data, oracle.magnitude);
  Comparer out;
  Comparer lse;
  const int64_t items = p.layout == Layout::packed ? 1 : p.batch;
  Row row;
  for (row.batch = 0; row.batch < items; ++row.batch)
    for (row.head = 0; row.head < p.heads_q; ++row.head)
      for (row.index = 0; row.index < p.seq_q; ++row.index) {
        const int64_t at = lse_offset(p, row);
        if (oracle.deep_bias[static_cast<size_t>(at)] != 0) {
          ++a.rows_left_out;
          continue;
        }
        if (p.lse) lse.add(load_element(t.lse.data, kF32, at), oracle.lse[static_cast<size_t>(at)]);
        const int64_t base = out_offset(p, row);
        for (int64_t d = base; d < base + p.dim_v; ++d)
          out.add(load_element(t.out.data, p.out_dtype, d), oracle.out[static_cast<size_t>(d)]);
      }
  a.out = out.result();
  a.lse = lse.result();
  a.pass = within(a.out, a.tolerance.rel_l2) && a.lse.nonfinite_mismatches == 0 &&
           a.lse.max_abs <= a.tolerance.lse;
  return a;
}

}  // namespace fovea::backends::reference
