#include "fovea/execution.hpp"

namespace fovea {

std::string_view name(SupportStatus status) noexcept {
  switch (status) {
    case SupportStatus::supported:
      return "supported";
    case SupportStatus::unsupported:
      return "unsupported";
    case SupportStatus::unmigrated:
      return "unmigrated";
  }
  return "unknown";
}

std::string_view name(CompilationMode mode) noexcept {
  switch (mode) {
    case CompilationMode::traceable:
      return "traceable";
    case CompilationMode::custom_op:
      return "custom_op";
    case CompilationMode::eager_only:
      return "eager_only";
  }
  return "unknown";
}

std::string_view name(PackingMode mode) noexcept {
  switch (mode) {
    case PackingMode::none:
      return "none";
    case PackingMode::packed_padding:
      return "packed_padding";
    case PackingMode::multi_document:
      return "multi_document";
  }
  return "unknown";
}

std::string_view name(MaskMode mode) noexcept {
  switch (mode) {
    case MaskMode::none:
      return "none";
    case MaskMode::padding:
      return "padding";
    case MaskMode::arbitrary:
      return "arbitrary";
    case MaskMode::unknown:
      return "unknown";
  }
  return "unknown";
}

std::string_view name(ParallelStrategy strategy) noexcept {
  switch (strategy) {
    case ParallelStrategy::none:
      return "none";
    case ParallelStrategy::ulysses:
      return "ulysses";
    case ParallelStrategy::ring:
      return "ring";
    case ParallelStrategy::hybrid_ulysses_ring:
      return "hybrid_ulysses_ring";
    case ParallelStrategy::allgather_kv:
      return "allgather_kv";
  }
  return "unknown";
}

std::string_view name(OuterBoundary boundary) noexcept {
  switch (boundary) {
    case OuterBoundary::hsdp:
      return "hsdp";
    case OuterBoundary::attention_schedule:
      return "attention_schedule";
  }
  return "unknown";
}

CapabilityResult requested_support(const ExecutionPathResult& report, bool require_fullgraph) {
  CapabilityResult result{report.support, report.reasons};
  if (!require_fullgraph || report.support == SupportStatus::unsupported) return result;
  if (report.support == SupportStatus::unmigrated) {
    result.status = SupportStatus::unsupported;
    result.reasons.push_back({ReasonCode::compilation, "full graph on path", report.path,
                              "a verified path", "use a verified path or drop the request"});
  } else if (report.compilation_mode == CompilationMode::eager_only) {
    result.status = SupportStatus::unsupported;
    result.reasons.push_back({ReasonCode::compilation, "full graph in compilation mode",
                              std::string(name(report.compilation_mode)), "traceable, custom_op",
                              "use another backend or drop the request"});
  }
  return result;
}

}  // namespace fovea
