#include "src/validation/cases.hpp"

#include <utility>

#include "src/config/rules.hpp"
#include "src/core/text.hpp"
#include "src/platform/validation_heads.hpp"

namespace fovea::validation {
namespace {

using Heads = HeadSizes;

constexpr Heads kReplayHeads[] = {{64, 64}, {128, 128}};
constexpr int64_t kReplayLengths[] = {127, 640, 1024};

class List {
 public:
  void add(std::string_view kind, Heads heads, std::string_view rest, int64_t batch, int64_t seq_q,
           AttentionMetadata metadata = {}) {
    std::string text = text::concat("bf16 b", batch, " h2 s", seq_q, " d", heads.query);
    if (heads.value != heads.query) text += text::concat(" dv=", heads.value);
    text += text::concat(rest.empty() ? "" : " ", rest, " lse=1 seed=", ++seed_);
    cases_.push_back({std::string(kind), std::move(text), std::move(metadata)});
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
  uint64_t seed_ = 0;
};

// Lengths, masks and documents are those that a video or image model makes.
std::vector<Case> dense_cases(const DeviceFacts& facts) {
  const bool npu = facts.platform() == PlatformId::npu;
  AttentionMetadata packed;
  packed.npu_attn_varlen = npu;
  List list;
  for (const Heads& heads : kDenseHeads) {
    list.add("dense", heads, "", 1, 1024);
    list.add("dense", heads, "hk=1", 2, 333);
    list.add("key padding", heads, "kvlen=1000,389", 2, 1000);
    list.add("key padding", heads, "mask=keys", 2, 517);
    list.add("unequal lengths", heads, "sk=512", 1, 777);
    list.add("unequal lengths", heads, "sk=600 kvlen=600,77", 2, 129);
    list.add("unequal lengths", heads, "sk=333 mask=keys", 2, 1024);
    list.add("packed", heads, "layout=packed docs=300:300,1:1,467:467,256:256", 1, 1024, packed);
    list.add("packed", heads, "sk=700 layout=packed docs=200:77,400:500,100:123", 1, 700, packed);
  }
  for (const int64_t length : kReplayLengths) {
    for (const Heads& heads : kReplayHeads) {
      list.add(kReplay, heads, "", 1, length);
      list.add(kReplay, heads, "kvlen=100,59", 2, length);
    }
  }
  for (const int64_t length : kReplayLengths) {
    const std::string documents =
        text::concat("layout=packed docs=100:100,", length - 100, ":", length - 100);
    for (const Heads& heads : kReplayHeads) list.add(kReplay, heads, documents, 1, length, packed);
  }
  if (!npu) return list.take();
  // One document in front of its padding: what laser attention slices.
  for (const Heads& heads : kDenseHeads) {
    AttentionMetadata padding = packed;
    padding.packed_padding = PackedPadding{700, 700};
    list.add("packed", heads, "", 1, 777, padding);
  }
  for (const int64_t length : kReplayLengths) {
    AttentionMetadata padding = packed;
    padding.packed_padding = PackedPadding{length - 27, length - 27};
    for (const Heads& heads : kReplayHeads) list.add(kReplay, heads, "", 1, length, padding);
  }
  return list.take();
}

// The pattern that is all a name takes; empty: any.
std::string_view only_pattern(BackendName backend) {
  if (backend == backend::RADIAL_ATTN) return "radial";
  if (backend == backend::LOCAL_SPARSE_ATTN) return "local";
  if (backend == backend::SPARGE_ATTN) return "topk";
  return {};
}

// Six frames of 160 tokens and some text; blocks of both sizes.
std::vector<Case> sparse_cases() {
  List list;
  for (const Heads& heads : kSparseHeads) {
    for (const std::string_view block : {"64", "128"}) {
      const std::string radial =
          text::concat("sparse=radial(frames=6,tokens=160,block=", block, ")");
      list.add("radial", heads, radial, 1, 1000);
      list.add("radial", heads, "hk=1 " + radial, 2, 960);
      list.add("radial key padding", heads, "kvlen=1000,977 " + radial, 2, 1000);
      const std::string local =
          text::concat("sparse=local(frames=6,tokens=160,block=", block, ",window=2)");
      list.add("local window", heads, local, 1, 1000);
      list.add("local window", heads, "hk=1 " + local, 2, 960);
      list.add("local window key padding", heads, "kvlen=1000,977 " + local, 2, 1000);
      const std::string lists =
          text::concat("sparse=random(density=0.4,q=128,kv=", block, ",batch=2,heads=2)");
      list.add("block lists", heads, lists, 2, 1000);
      list.add("block lists key padding", heads, "kvlen=777,389 " + lists, 2, 1000);
      list.add("block lists unequal lengths", heads, "sk=700 " + lists, 2, 333);
      const std::string topk =
          text::concat("sparse=topk(sparsity=0.5,block=", block, ",prefix=70)");
      list.add("top-k", heads, topk, 2, 1000);
      list.add("top-k key padding", heads, "kvlen=1000,777 " + topk, 2, 1000);
      list.add("top-k unequal lengths", heads, "sk=700 " + topk, 2, 333);
    }
  }
  for (const int64_t length : {int64_t{387}, int64_t{640}, int64_t{1024}}) {
    const std::string video = text::concat("frames=3,tokens=", length / 3, ",block=64");
    for (const Heads& heads : kReplayHeads) {
      list.add(kReplay, heads, "sparse=radial(" + video + ")", 1, length);
      list.add(kReplay, heads, "sparse=local(" + video + ",window=3)", 1, length);
      list.add(kReplay, heads, "sparse=random(density=0.4,q=128,kv=64,batch=1,heads=2)", 1, length);
      list.add(kReplay, heads, "sparse=topk(sparsity=0.5,block=64)", 1, length);
    }
  }
  return list.take();
}

}  // namespace

std::vector<Case> validation_cases(BackendName backend, const DeviceFacts& facts) {
  if (!config::is_sparse(backend)) return dense_cases(facts);
  std::vector<Case> cases = sparse_cases();
  const std::string_view only = only_pattern(backend);
  std::erase_if(cases, [&](const Case& each) {
    return each.problem.find(text::concat("sparse=", only)) == std::string::npos;
  });
  return cases;
}

}  // namespace fovea::validation
