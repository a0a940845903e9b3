#include <array>
#include <string>
#include <vector>

#include "fovea/metadata.hpp"
#include "src/config/json_reader.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace config {
namespace {

constexpr std::string_view kOrigin = "metadata";

// What other programs state in their metadata and this one takes elsewhere.
struct Elsewhere {
  std::string_view key;
  std::string_view place;
};
constexpr std::string_view kJoint =
    "joint tensors are tensors: concatenate them with q, k and v, or call attend_jointly (C++, "
    "fovea.torch)";
constexpr Elsewhere kElsewhere[] = {
    {"attn_mask", "the mask is a tensor of the call"},
    {"attention_mask_mode", "spelt mask_mode here"},
    {"cu_seqlens_q", "boundaries are tensors of the call"},
    {"cu_seqlens_k", "boundaries are tensors of the call"},
    {"cu_seqlens_kv", "boundaries are tensors of the call"},
    {"max_seqlen_q", "the longest documents are options of the call"},
    {"max_seqlen_k", "the longest documents are options of the call"},
    {"max_seqlen_kv", "the longest documents are options of the call"},
    {"joint_query", kJoint},
    {"joint_key", kJoint},
    {"joint_value", kJoint},
    {"joint_strategy", kJoint},
    {"joint_attn_mask", kJoint},
};

std::string_view place_of(std::string_view key) noexcept {
  for (const Elsewhere& other : kElsewhere)
    if (other.key == key) return other.place;
  return {};
}

// One key of a map that is read into a T.
template <class T>
struct Member {
  std::string_view key;
  void (*read)(const Value& value, const Path& path, T& out, Problems& problems);
};

template <class T, size_t N>
void read_map(const Value& node, const Member<T> (&members)[N], const Path& path, T& out,
              Problems& problems) {
  std::vector<std::string_view> known;
  for (const Member<T>& member : members) known.push_back(member.key);
  if (!node.is_object()) {
    problems.mismatch(path, "a map with keys among " + text::join(known), node);
    return;
  }
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const Member<T>* found = nullptr;
    for (const Member<T>& member : members)
      if (member.key == key) found = &member;
    if (found != nullptr) {
      found->read(node.items[i], path / key, out, problems);
      continue;
    }
    const std::string_view place = place_of(key);
    problems.add(path / key, ReasonCode::option_value,
                 text::concat("unknown key; ", place, place.empty() ? "" : "; ",
                              "known here: ", text::join(known),
                              place.empty() ? text::suggestion(key, known) : std::string()),
                 key, text::join(known), std::string(place));
  }
}

// Whether a number is in range is for normalise() to say, which knows the call.
void read_integer(const Value& value, const Path& path, int64_t& out, Problems& problems) {
  if (value.kind == Value::Kind::integer)
    out = value.integer;
  else
    problems.mismatch(path, "an integer", value);
}

void read_text(const Value& value, const Path& path, std::string& out, Problems& problems) {
  if (value.is_string())
    out = value.text;
  else
    problems.mismatch(path, "a text", value);
}

// [a, b, ...], all integers.
template <size_t N>
bool read_integers(const Value& value, const Path& path, std::string_view accepted,
                   std::array<int64_t, N>& out, Problems& problems) {
  bool fits = value.kind == Value::Kind::array && value.items.size() == N;
  for (size_t i = 0; fits && i < N; ++i) {
    fits = value.items[i].kind == Value::Kind::integer;
    out[i] = value.items[i].integer;
  }
  if (!fits) problems.mismatch(path, accepted, value);
  return fits;
}

// A list whose items `read` turns into members of `out`.
template <class T>
void read_list(const Value& value, const Path& path, std::string_view accepted,
               void (*read)(const Value&, const Path&, T&, Problems&), std::vector<T>& out,
               Problems& problems) {
  if (value.kind != Value::Kind::array) {
    problems.mismatch(path, accepted, value);
    return;
  }
  for (size_t i = 0; i < value.items.size(); ++i)
    read(value.items[i], path[i], out.emplace_back(), problems);
}

// A word that stands for an enumerator.
template <class E, size_t N>
void read_word(const Value& value, const Path& path, const E (&choices)[N], E& out,
               Problems& problems) {
  std::vector<std::string_view> words;
  for (E choice : choices) {
    words.push_back(name(choice));
    if (value.is_string() && value.text == words.back()) {
      out = choice;
      return;
    }
  }
  problems.mismatch(path, text::join(words), value,
                    value.is_string() ? text::suggestion(value.text, words) : std::string());
}

void read_grid(const Value& value, const Path& path, VideoGrid& out, Problems& problems) {
  std::array<int64_t, 3> sizes{};
  if (read_integers(value, path, "[frames, height, width]", sizes, problems))
    out = {sizes[0], sizes[1], sizes[2]};
}

void read_span(const Value& value, const Path& path, Span& out, Problems& problems) {
  std::array<int64_t, 2> ends{};
  if (read_integers(value, path, "[begin, end]", ends, problems)) out = {ends[0], ends[1]};
}

void read_range(const Value& value, const Path& path, QueryRange& out, Problems& problems) {
  std::array<int64_t, 3> ends{};
  if (read_integers(value, path, "[local_begin, local_end, global_begin]", ends, problems))
    out = {ends[0], ends[1], ends[2]};
}

constexpr Member<VideoSpan> kVideoSpan[] = {
    {"begin", [](const Value& v, const Path& path, VideoSpan& out,
                 Problems& problems) { read_integer(v, path, out.begin, problems); }},
    {"grid", [](const Value& v, const Path& path, VideoSpan& out,
                Problems& problems) { read_grid(v, path, out.grid, problems); }},
    {"role",
     [](const Value& v, const Path& path, VideoSpan& out, Problems& problems) {
       constexpr VideoRole kRoles[] = {VideoRole::target, VideoRole::reference};
       read_word(v, path, kRoles, out.role, problems);
     }},
};

void read_video_span(const Value& value, const Path& path, VideoSpan& out, Problems& problems) {
  read_map(value, kVideoSpan, path, out, problems);
}

constexpr Member<VideoLayout> kVideoLayout[] = {
    {"prefix_length",
     [](const Value& v, const Path& path, VideoLayout& out, Problems& problems) {
       read_integer(v, path, out.prefix_length, problems);
     }},
    {"grid", [](const Value& v, const Path& path, VideoLayout& out,
                Problems& problems) { read_grid(v, path, out.grid.emplace(), problems); }},
    {"used_length", [](const Value& v, const Path& path, VideoLayout& out,
                       Problems& problems) { read_integer(v, path, out.used_length, problems); }},
    {"spans",
     [](const Value& v, const Path& path, VideoLayout& out, Problems& problems) {
       read_list(v, path, "a list of maps", read_video_span, out.spans, problems);
     }},
};

constexpr Member<PackedPadding> kPackedPadding[] = {
    {"q_length", [](const Value& v, const Path& path, PackedPadding& out,
                    Problems& problems) { read_integer(v, path, out.q_length, problems); }},
    {"kv_length", [](const Value& v, const Path& path, PackedPadding& out,
                     Problems& problems) { read_integer(v, path, out.kv_length, problems); }},
};

constexpr Member<AttentionMetadata> kMetadata[] = {
    {"mask_mode",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       constexpr MaskMode kModes[] = {MaskMode::none, MaskMode::padding, MaskMode::arbitrary};
       read_word(v, path, kModes, out.mask_mode.emplace(), problems);
     }},
    {"valid_kv_length",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       read_integer(v, path, out.valid_kv_length.emplace(), problems);
     }},
    {"packed_padding",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       // Both lengths or an error: a missing one would mean no token at all.
       read_map(v, kPackedPadding, path, out.packed_padding.emplace(), problems);
       for (const Member<PackedPadding>& member : kPackedPadding)
         if (v.is_object() && v.find(member.key) == nullptr)
           problems.add(path, ReasonCode::option_value, text::concat("lacks ", member.key), {},
                        std::string(member.key));
     }},
    {"full_attn_spans",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       read_list(v, path, "a list of [begin, end]", read_span, out.full_attn_spans.emplace(),
                 problems);
     }},
    {"query_ranges",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       read_list(v, path, "a list of [local_begin, local_end, global_begin]", read_range,
                 out.query_ranges, problems);
     }},
    {"protected_kv_prefix",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       read_integer(v, path, out.protected_kv_prefix, problems);
     }},
    {"video_layout",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       read_map(v, kVideoLayout, path, out.video_layout.emplace(), problems);
     }},
    {"kv_cache_dtype",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       read_text(v, path, out.kv_cache_dtype, problems);
     }},
    {"laser_input_scale",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       if (v.kind == Value::Kind::integer || v.kind == Value::Kind::number)
         out.laser_input_scale = v.number;
       else
         problems.mismatch(path, "a number", v);
     }},
    {"npu_attn_varlen",
     [](const Value& v, const Path& path, AttentionMetadata& out, Problems& problems) {
       if (v.kind == Value::Kind::boolean)
         out.npu_attn_varlen = v.boolean;
       else
         problems.mismatch(path, "true or false", v);
     }},
};

}  // namespace
}  // namespace config

Result<AttentionMetadata> parse_metadata(std::string_view json) {
  config::Problems problems;
  FOVEA_TRY(const config::Value node, config::read_json(json, config::kOrigin, problems));
  AttentionMetadata out;
  config::read_map(node, config::kMetadata, {}, out, problems);
  if (!problems.empty()) return problems.error(config::kOrigin);
  return out;
}

}  // namespace fovea
