// Which path of a package's kernel a call takes, as data: one table per package, read by resolution
// and dispatch alike.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "fovea/backend_name.hpp"
#include "fovea/execution.hpp"
#include "fovea/problem.hpp"
#include "src/backends/instance.hpp"

namespace fovea::backends {

enum class Need : uint8_t { any, yes, no };

// The shape in which a path takes a mask.
enum class MaskForm : uint8_t { as_passed, keys, rows };

// What the tables read of a call.
struct Surroundings {
  MaskMode mask = MaskMode::none;
  PackingMode packing = PackingMode::none;
  Element dtype = Element::f32;
  bool diagonal = false;  // causal or a window
  bool plain = true;  // not piecewise, paged, parallel, sharded, nor on stored keys of another type
  bool varlen = false;        // npu_attn_varlen
  bool laser = false;         // the fact of that name
  bool host_lengths = false;  // boundaries are known on the host
};
Surroundings surroundings(const Problem& problem, const ExecutionContext& context);

// One path. All conditions hold, or the row does not apply.
struct PathRow {
  std::string_view path;
  Set<MaskMode> masks = {MaskMode::none, MaskMode::padding, MaskMode::arbitrary, MaskMode::unknown};
  Set<PackingMode> packings = {PackingMode::none, PackingMode::packed_padding,
                               PackingMode::multi_document};
  Set<Element> dtypes = {Element::f32, Element::f16, Element::bf16};
  Need diagonal = Need::any;
  Need plain = Need::any;
  Need varlen = Need::any;
  Need laser = Need::any;
  Need host_lengths = Need::any;
  // Supported once a validation record covers the call. Else the path is none to promote: nobody
  // has inspected what runs there.
  bool verifiable = true;
  // And only with a kernel whose package publishes a rule for head sizes.
  bool needs_validator = false;
  // Of a supported path; every other one is for eager use.
  CompilationMode compilation_mode = CompilationMode::eager_only;
  MaskForm mask_form = MaskForm::as_passed;
  bool prefix_slice = false;  // K and V end with the valid keys
  // A refusal instead of a path: what is accepted and what to do. The code and what was asked
  // follow from the row's conditions.
  std::string_view accepted = {};
  std::string_view remedy = {};

  bool applies(const Surroundings& s) const noexcept;
  bool refuses() const noexcept { return !accepted.empty(); }
};

struct PackagePaths {
  std::string_view package;
  std::optional<PlatformId> platform;  // none: wherever the policy admits it
  std::span<const PathRow> rows;       // the first that applies; the last one always does
};

// Never fails: a package without a table of its own has one path that says nothing.
const PackagePaths& paths_of(std::string_view package) noexcept;
// The same under a name. The tables are of dense attention under FLASH_ATTN and FLASH_ATTN_4; other
// kernels of these packages (quantised, block-sparse) have that one path and limits of their own.
const PackagePaths& paths_of(std::string_view package, BackendName backend) noexcept;
const PathRow& find_path(const PackagePaths& paths, const Surroundings& s) noexcept;

// Why a refusing row refuses.
Reason refusal(const PathRow& row, const Surroundings& s);

}  // namespace fovea::backends
