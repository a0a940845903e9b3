// Reading and printing problem strings. A string is a list of words: the element type, the sizes
// bN hN sN dN, and key=value words. Words are collected first, in any order, and applied in a fixed
// order.

#include <array>
#include <utility>

#include "fovea/problem.hpp"
#include "src/core/problem_names.hpp"
#include "src/core/text.hpp"

namespace fovea {
namespace {

using std::string_view;
using text::concat;
using text::quote;

// The words of a problem string, in the order in which they are printed and applied.
enum class Key : size_t {
  dtype,
  b,
  h,
  s,
  d,  // without '='
  hk,
  sk,
  dv,
  layout,
  outlayout,
  mask,
  maskdims,
  maskdtype,
  window,
  pieces,
  kvlen,
  docs,
  ndocs,
  maxdoc,
  scale,
  lse,
  out,
  strides,
  align,
  sparse,
  seed,
  count
};

// `field` is the member that validate() names; "" when another word of the list covers it.
struct KeyInfo {
  string_view word;
  string_view field;
};
constexpr size_t kKeys = static_cast<size_t>(Key::count);
constexpr std::array<KeyInfo, kKeys> kInfo = {{
    {"dtype", "dtype"},
    {"b", "batch"},
    {"h", "heads_q"},
    {"s", "seq_q"},
    {"d", "head_dim"},
    {"hk", "heads_kv"},
    {"sk", "seq_kv"},
    {"dv", "dim_v"},
    {"layout", "layout"},
    {"outlayout", "out_layout"},
    {"mask", "mask"},
    {"maskdims", "mask.axes"},
    {"maskdtype", "mask.dtype"},
    {"window", "window"},
    {"pieces", "pieces"},
    {"kvlen", "kv_lengths"},
    {"docs", "document_values"},
    {"ndocs", "documents"},
    {"maxdoc", "max_document_q"},
    {"scale", "scale"},
    {"lse", "lse"},
    {"out", "out_dtype"},
    {"strides", "strides_kind"},
    {"align", "alignment"},
    {"sparse", "sparse"},
    {"seed", "seed"},
}};
constexpr size_t kFirstNamed = static_cast<size_t>(Key::hk);
constexpr string_view kUnknownLengths = "?";

struct Word {
  string_view value;
  size_t column = 0;  // of the whole word
};

std::vector<string_view> named_keys() {
  std::vector<string_view> out;
  for (size_t i = kFirstNamed; i < kKeys; ++i) out.push_back(kInfo[i].word);
  return out;
}

Error fail(size_t column, const std::string& message) {
  return {ErrorCode::invalid_problem, concat("problem string, column ", column, ": ", message), {}};
}

bool digit(char c) noexcept { return c >= '0' && c <= '9'; }

class Reader {
 public:
  explicit Reader(string_view text) : text_(text) {}

  Result<Problem> read() {
    FOVEA_CHECK(collect());
    for (Status (Reader::*apply)() :
         {&Reader::apply_sizes, &Reader::apply_layout, &Reader::apply_mask, &Reader::apply_pieces,
          &Reader::apply_lengths, &Reader::apply_documents, &Reader::apply_numbers,
          &Reader::apply_strides, &Reader::apply_sparse})
      FOVEA_CHECK((this->*apply)());
    if (Status status = validate(problem_); !status) return located(std::move(status).error());
    return std::move(problem_);
  }

 private:
  const std::optional<Word>& word(Key key) const { return words_[static_cast<size_t>(key)]; }

  Status store(size_t key, string_view value, size_t column) {
    if (words_[key])
      return fail(column, concat(quote(kInfo[key].word), " is given twice, first in column ",
                                 words_[key]->column));
    words_[key] = Word{value, column};
    return {};
  }

  Status collect() {
    for (size_t at = 0;;) {
      while (at < text_.size() && text::is_blank(text_[at])) ++at;
      if (at == text_.size()) return {};
      const size_t begin = at;
      while (at < text_.size() && !text::is_blank(text_[at])) ++at;
      FOVEA_CHECK(collect_word(text_.substr(begin, at - begin), begin));
    }
  }

  Status collect_word(string_view whole, size_t column) {
    const size_t equals = whole.find('=');
    if (equals == string_view::npos) return collect_plain(whole, column);
    const string_view key = whole.substr(0, equals);
    for (size_t i = kFirstNamed; i < kKeys; ++i)
      if (kInfo[i].word == key) return store(i, whole.substr(equals + 1), column);
    const std::vector<string_view> known = named_keys();
    return fail(column, concat("key ", quote(key), " is not known", text::suggestion(key, known),
                               " (known: ", text::join(std::span(known)), ")"));
  }

  Status collect_plain(string_view whole, size_t column) {
    for (Key size : {Key::b, Key::h, Key::s, Key::d}) {
      const auto index = static_cast<size_t>(size);
      if (whole.size() < 2 || whole[0] != kInfo[index].word[0]) continue;
      if (digit(whole[1]) || whole[1] == '-' || whole[1] == '+' || whole[1] == '.')
        return store(index, whole.substr(1), column);
    }
    if (const auto dtype = parse_dtype(whole)) {
      if (*dtype != kF32 && *dtype != kF16 && *dtype != kBF16)
        return fail(column, concat("element type ", name(*dtype),
                                   " is not accepted (accepted: f32, f16, bf16)"));
      return store(static_cast<size_t>(Key::dtype), whole, column);
    }
    constexpr std::array<string_view, 3> kTypes = {"f32", "f16", "bf16"};
    return fail(column,
                concat("word ", quote(whole), " is not understood", text::suggestion(whole, kTypes),
                       " (accepted: f32, f16, bf16, bN, hN, sN, dN, "
                       "key=value)"));
  }

  // A whole number >= least.
  Result<int64_t> number(const Word& w, string_view what, int64_t least = 0) {
    const std::optional<int64_t> value = text::parse_integer(w.value);
    if (value && *value >= least) return *value;
    return fail(w.column,
                concat(what, ' ', quote(w.value), " is not accepted (accepted: whole numbers in ",
                       least, "..9223372036854775807)"));
  }

  Status number_into(Key key, int64_t& target, int64_t fallback) {
    target = fallback;
    if (const auto& w = word(key)) {
      FOVEA_TRY(target, number(*w, kInfo[static_cast<size_t>(key)].word));
    }
    return {};
  }

  // "a<separator>b", each a whole number >= least.
  Result<std::pair<int64_t, int64_t>> pair(const Word& w, string_view piece, char separator,
                                           string_view what, int64_t least = 0) {
    const std::vector<string_view> parts = text::split(piece, separator);
    if (parts.size() != 2)
      return fail(w.column,
                  concat(what, ' ', quote(piece), " is not of the form N", separator, "N"));
    FOVEA_TRY(const int64_t first, number({parts[0], w.column}, what, least));
    FOVEA_TRY(const int64_t second, number({parts[1], w.column}, what, least));
    return std::pair(first, second);
  }

  Result<bool> flag(const Word& w, string_view what) {
    if (w.value == "0" || w.value == "1") return w.value == "1";
    return fail(w.column, concat(what, ' ', quote(w.value), " is not accepted (accepted: 0, 1)"));
  }

  Result<DType> dtype(const Word& w, string_view what, string_view accepted) {
    if (const auto parsed = parse_dtype(w.value)) return *parsed;
    return fail(w.column, concat(what, ' ', quote(w.value),
                                 " is not an element type (accepted: ", accepted, ")"));
  }

  Result<Layout> layout(const Word& w, string_view what) {
    if (const auto parsed = parse_layout(w.value)) return *parsed;
    return fail(w.column, concat(what, ' ', quote(w.value),
                                 " is not a layout (accepted: bshd, bhsd, packed)"));
  }

  Status apply_sizes() {
    constexpr std::array<std::pair<Key, string_view>, 5> kRequired = {
        {{Key::dtype, "an element type (f32, f16, bf16)"},
         {Key::b, "bN (batch)"},
         {Key::h, "hN (query heads)"},
         {Key::s, "sN (query length)"},
         {Key::d, "dN (head size)"}}};
    for (const auto& [key, what] : kRequired)
      if (!word(key)) return fail(text_.size(), concat(what, " is missing"));
    Problem& p = problem_;
    p.dtype = *parse_dtype(word(Key::dtype)->value);
    FOVEA_CHECK(number_into(Key::b, p.batch, 1));
    FOVEA_CHECK(number_into(Key::h, p.heads_q, 1));
    FOVEA_CHECK(number_into(Key::s, p.seq_q, 1));
    FOVEA_CHECK(number_into(Key::d, p.head_dim, 1));
    FOVEA_CHECK(number_into(Key::hk, p.heads_kv, p.heads_q));
    FOVEA_CHECK(number_into(Key::sk, p.seq_kv, p.seq_q));
    FOVEA_CHECK(number_into(Key::dv, p.dim_v, p.head_dim));
    p.out_dtype = p.dtype;
    if (const auto& w = word(Key::out)) {
      FOVEA_TRY(p.out_dtype, dtype(*w, "out", concat(name(p.dtype), ", f32")));
    }
    return {};
  }

  Status apply_layout() {
    Problem& p = problem_;
    const bool documents = word(Key::docs) || word(Key::ndocs) || word(Key::maxdoc);
    p.layout = documents ? Layout::packed : Layout::bshd;
    if (const auto& w = word(Key::layout)) {
      FOVEA_TRY(p.layout, layout(*w, "layout"));
      if (documents && p.layout != Layout::packed)
        return fail(w->column, concat("documents need layout=packed, got ", name(p.layout)));
    }
    p.out_layout = p.layout;
    if (const auto& w = word(Key::outlayout)) {
      FOVEA_TRY(p.out_layout, layout(*w, "outlayout"));
    }
    return {};
  }

  Status mask_term(const Word& w, string_view term) {
    constexpr std::array<std::pair<string_view, MaskKind>, 3> kTensors = {
        {{"keys", MaskKind::keys}, {"bool", MaskKind::boolean}, {"bias", MaskKind::bias}}};
    Problem& p = problem_;
    if (term == "causal") {
      if (p.causal) return fail(w.column, "mask term 'causal' is given twice");
      p.causal = true;
      return {};
    }
    for (const auto& [text, kind] : kTensors) {
      if (term != text) continue;
      if (p.mask.kind != MaskKind::none)
        return fail(w.column, concat("mask has both ", name(p.mask.kind), " and ", term,
                                     " (accepted: one of keys, bool, bias)"));
      p.mask.kind = kind;
      p.mask.dtype = kind == MaskKind::bias ? kF32 : kBool;
      p.mask.per_batch = true;
      p.mask.per_query = kind != MaskKind::keys;
      return {};
    }
    if (term == "none") return fail(w.column, "mask term 'none' stands alone");
    constexpr std::array<string_view, 5> kTerms = {"none", "causal", "keys", "bool", "bias"};
    return fail(w.column,
                concat("mask term ", quote(term), " is not known", text::suggestion(term, kTerms),
                       " (accepted: none, causal, keys, bool, bias)"));
  }

  Status apply_mask() {
    MaskTensor& mask = problem_.mask;
    if (const auto& w = word(Key::mask); w && w->value != "none")
      for (string_view term : text::split(w->value, '+')) FOVEA_CHECK(mask_term(*w, term));
    for (Key key : {Key::maskdims, Key::maskdtype})
      if (const auto& w = word(key); w && mask.kind == MaskKind::none)
        return fail(w->column, concat(kInfo[static_cast<size_t>(key)].word,
                                      " needs a mask tensor (mask=keys, bool or bias)"));
    if (const auto& w = word(Key::maskdtype)) {
      FOVEA_TRY(mask.dtype, dtype(*w, "maskdtype", "bool, u8, i32, i64, f32, f16, bf16"));
    }
    if (const auto& w = word(Key::maskdims)) FOVEA_CHECK(mask_axes(*w));
    return {};
  }

  Status mask_axes(const Word& w) {
    MaskTensor& mask = problem_.mask;
    mask.per_batch = mask.per_head = mask.per_query = false;
    if (w.value == "none") return {};
    if (w.value.empty()) return bad_axes(w);
    for (char c : w.value) {
      bool* const axis = c == 'b'   ? &mask.per_batch
                         : c == 'h' ? &mask.per_head
                         : c == 'q' ? &mask.per_query
                                    : nullptr;
      if (axis == nullptr || *axis) return bad_axes(w);
      *axis = true;
    }
    return {};
  }

  Status bad_axes(const Word& w) {
    return fail(w.column,
                concat("maskdims ", quote(w.value),
                       " is not accepted (accepted: none, or letters of bhq, each once)"));
  }

  // "rows:keys" per piece, with a 'c' behind a causal one.
  Status apply_pieces() {
    const auto& w = word(Key::pieces);
    if (!w) return {};
    for (string_view item : text::split(w->value, ',')) {
      const bool causal = item.ends_with('c');
      if (causal) item.remove_suffix(1);
      FOVEA_TRY(const auto sizes, pair(*w, item, ':', "pieces"));
      problem_.pieces.push_back({sizes.first, sizes.second, causal});
    }
    return {};
  }

  Status apply_lengths() {
    const auto& w = word(Key::kvlen);
    if (!w) return {};
    problem_.has_kv_lengths = true;
    if (w->value == kUnknownLengths) return {};
    for (string_view item : text::split(w->value, ',')) {
      FOVEA_TRY(const int64_t length, number({item, w->column}, "kvlen"));
      problem_.kv_length_values.push_back(length);
    }
    return {};
  }

  Status apply_documents() {
    Problem& p = problem_;
    if (p.layout != Layout::packed) return {};
    const auto& docs = word(Key::docs);
    const auto& count = word(Key::ndocs);
    const auto& longest = word(Key::maxdoc);
    if (docs && (count || longest))
      return fail((count ? count : longest)->column, "docs already says what ndocs and maxdoc say");
    if (count.has_value() != longest.has_value())
      return fail((count ? count : longest)->column, "ndocs and maxdoc go together");
    if (count) {
      FOVEA_TRY(p.documents, number(*count, "ndocs"));
      FOVEA_TRY(const auto lengths, pair(*longest, longest->value, ':', "maxdoc"));
      p.max_document_q = lengths.first;
      p.max_document_kv = lengths.second;
      return {};
    }
    if (docs) {
      for (string_view item : text::split(docs->value, ',')) {
        FOVEA_TRY(const auto lengths, pair(*docs, item, ':', "docs"));
        p.document_values.push_back({lengths.first, lengths.second});
      }
    } else {
      p.document_values.push_back({p.seq_q, p.seq_kv});
    }
    p.documents = static_cast<int64_t>(p.document_values.size());
    for (const Document& document : p.document_values) {
      p.max_document_q = std::max(p.max_document_q, document.seq_q);
      p.max_document_kv = std::max(p.max_document_kv, document.seq_kv);
    }
    return {};
  }

  Status apply_numbers() {
    Problem& p = problem_;
    if (const auto& w = word(Key::window)) {
      FOVEA_TRY(const auto sides, pair(*w, w->value, ',', "window", -1));
      p.window = {sides.first, sides.second};
    }
    if (const auto& w = word(Key::scale)) {
      const std::optional<double> value = text::parse_number(w->value);
      if (!value)
        return fail(w->column, concat("scale ", quote(w->value),
                                      " is not accepted (accepted: finite numbers above 0)"));
      p.scale = *value;
    }
    if (const auto& w = word(Key::lse)) {
      FOVEA_TRY(p.lse, flag(*w, "lse"));
    }
    if (const auto& w = word(Key::seed)) {
      const std::optional<uint64_t> value = text::parse_unsigned(w->value);
      if (!value)
        return fail(
            w->column,
            concat("seed ", quote(w->value),
                   " is not accepted (accepted: whole numbers in 0..18446744073709551615)"));
      p.seed = *value;
    }
    return {};
  }

  Status apply_strides() {
    Problem& p = problem_;
    if (const auto& w = word(Key::align)) {
      FOVEA_TRY(const int64_t alignment, number(*w, "align"));
      if (alignment > 64)
        return fail(w->column, concat("align ", alignment,
                                      " is not accepted (accepted: powers of two up to 64)"));
      p.alignment = static_cast<int32_t>(alignment);
    }
    const auto& w = word(Key::strides);
    if (w && w->value.starts_with("custom:")) return custom_strides(*w);
    if (w) {
      const std::optional<StridesKind> kind = parse_strides_kind(w->value);
      if (!kind || *kind == StridesKind::custom) {
        constexpr std::array<string_view, 4> kKinds = {"contig", "fused_qkv", "bhsd_view",
                                                       "expanded"};
        return fail(w->column, concat("strides ", quote(w->value), " is not known",
                                      text::suggestion(w->value, kKinds),
                                      " (accepted: contig, fused_qkv, bhsd_view, expanded, "
                                      "custom:B,S,H/B,S,H/B,S,H for q, k and v)"));
      }
      p.strides_kind = *kind;
    }
    fill_strides(p);
    return {};
  }

  Status custom_strides(const Word& w) {
    Problem& p = problem_;
    p.strides_kind = StridesKind::custom;
    const std::vector<string_view> tensors = text::split(w.value.substr(7), '/');
    Strides* const targets[] = {&p.q_strides, &p.k_strides, &p.v_strides};
    for (size_t i = 0; i < 3 && tensors.size() == 3; ++i) {
      const std::vector<string_view> parts = text::split(tensors[i], ',');
      if (parts.size() != 3) break;
      FOVEA_TRY(targets[i]->batch, number({parts[0], w.column}, "stride"));
      FOVEA_TRY(targets[i]->seq, number({parts[1], w.column}, "stride"));
      FOVEA_TRY(targets[i]->head, number({parts[2], w.column}, "stride"));
      if (i == 2) return {};
    }
    return fail(w.column,
                concat("strides ", quote(w.value), " is not of the form custom:B,S,H/B,S,H/B,S,H"));
  }

  Status apply_sparse() {
    const auto& w = word(Key::sparse);
    if (!w) return {};
    SparsePattern pattern;
    const size_t open = w->value.find('(');
    pattern.name = std::string(w->value.substr(0, open));
    if (open != string_view::npos) {
      string_view inside = w->value.substr(open + 1);
      if (!inside.ends_with(')')) return fail(w->column, "sparse lacks the closing ')'");
      inside.remove_suffix(1);
      if (!inside.empty())
        for (string_view item : text::split(inside, ',')) {
          const size_t equals = item.find('=');
          if (equals == string_view::npos)
            return fail(w->column,
                        concat("sparse parameter ", quote(item), " is not of the form key=value"));
          pattern.parameters.emplace_back(item.substr(0, equals), item.substr(equals + 1));
        }
    }
    problem_.sparse = std::move(pattern);
    return {};
  }

  // Adds the column of the word that set the field which validate() names.
  Error located(Error error) const {
    constexpr string_view kPrefix = "problem: ";
    size_t column = 0;
    if (!error.reasons.empty()) {
      string_view field = error.reasons[0].field;
      if (field.starts_with("max_document_")) field = "max_document_q";
      if (word(Key::docs) && field == "max_document_q") field = "document_values";
      if (field.ends_with("_strides")) field = "strides_kind";
      for (size_t i = 0; i < kKeys; ++i)
        if (kInfo[i].field == field && words_[i]) column = words_[i]->column;
    }
    string_view message = error.message;
    if (message.starts_with(kPrefix)) message.remove_prefix(kPrefix.size());
    error.message = concat("problem string, column ", column, ": ", message);
    return error;
  }

  string_view text_;
  std::array<std::optional<Word>, kKeys> words_;
  Problem problem_;
};

// Collects "key=value" words.
class Printer {
 public:
  explicit Printer(std::string start) : out_(std::move(start)) {}
  void add(Key key, string_view value) {
    out_ += concat(' ', kInfo[static_cast<size_t>(key)].word, '=', value);
  }
  void add(Key key, int64_t value) { add(key, std::to_string(value)); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

template <class Items, class Print>
std::string list(const Items& items, Print print) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += ',';
    out += print(item);
  }
  return out;
}

std::string piece_text(const Piece& p) { return concat(p.rows, ':', p.keys, p.causal ? "c" : ""); }

std::string document_text(const Document& d) { return concat(d.seq_q, ':', d.seq_kv); }

std::string strides_text(const Problem& p) {
  const auto triple = [](const Strides& s) { return concat(s.batch, ',', s.seq, ',', s.head); };
  return concat("custom:", triple(p.q_strides), '/', triple(p.k_strides), '/', triple(p.v_strides));
}

std::string sparse_text(const SparsePattern& pattern) {
  if (pattern.parameters.empty()) return pattern.name;
  return concat(pattern.name, '(',
                list(pattern.parameters,
                     [](const auto& entry) { return concat(entry.first, '=', entry.second); }),
                ')');
}

void print_mask(Printer& print, const Problem& p) {
  const MaskTensor& mask = p.mask;
  if (mask.kind == MaskKind::none) {
    if (p.causal) print.add(Key::mask, "causal");
    return;
  }
  print.add(Key::mask, concat(p.causal ? "causal+" : "", name(mask.kind)));
  const bool usual_axes =
      mask.per_batch && !mask.per_head && mask.per_query == (mask.kind != MaskKind::keys);
  if (!usual_axes) {
    const std::string axes =
        concat(mask.per_batch ? "b" : "", mask.per_head ? "h" : "", mask.per_query ? "q" : "");
    print.add(Key::maskdims, axes.empty() ? "none" : axes);
  }
  if (mask.dtype != (mask.kind == MaskKind::bias ? kF32 : kBool))
    print.add(Key::maskdtype, name(mask.dtype));
}

void print_documents(Printer& print, const Problem& p) {
  if (p.layout != Layout::packed) return;
  if (p.document_values.empty()) {
    print.add(Key::ndocs, p.documents);
    print.add(Key::maxdoc, document_text({p.max_document_q, p.max_document_kv}));
  } else if (p.document_values != std::vector<Document>{{p.seq_q, p.seq_kv}}) {
    print.add(Key::docs, list(p.document_values, document_text));
  }
}

}  // namespace

Result<Problem> parse_problem(std::string_view text) { return Reader(text).read(); }

std::string to_string(const Problem& p) {
  Printer print(
      concat(name(p.dtype), " b", p.batch, " h", p.heads_q, " s", p.seq_q, " d", p.head_dim));
  if (p.heads_kv != p.heads_q) print.add(Key::hk, p.heads_kv);
  if (p.seq_kv != p.seq_q) print.add(Key::sk, p.seq_kv);
  if (p.dim_v != p.head_dim) print.add(Key::dv, p.dim_v);
  if (p.layout != Layout::bshd) print.add(Key::layout, name(p.layout));
  if (p.out_layout != p.layout) print.add(Key::outlayout, name(p.out_layout));
  print_mask(print, p);
  if (p.window != Window{}) print.add(Key::window, concat(p.window.left, ',', p.window.right));
  if (!p.pieces.empty()) print.add(Key::pieces, list(p.pieces, piece_text));
  if (p.has_kv_lengths)
    print.add(Key::kvlen, p.kv_length_values.empty()
                              ? std::string(kUnknownLengths)
                              : list(p.kv_length_values, [](int64_t n) { return concat(n); }));
  print_documents(print, p);
  if (p.scale) print.add(Key::scale, text::format_number(*p.scale));
  if (p.lse) print.add(Key::lse, 1);
  if (p.out_dtype != p.dtype) print.add(Key::out, name(p.out_dtype));
  if (p.strides_kind == StridesKind::custom)
    print.add(Key::strides, strides_text(p));
  else if (p.strides_kind != StridesKind::contig)
    print.add(Key::strides, name(p.strides_kind));
  if (p.alignment != 64) print.add(Key::align, p.alignment);
  if (p.sparse) print.add(Key::sparse, sparse_text(*p.sparse));
  if (p.seed != 0) print.add(Key::seed, std::to_string(p.seed));
  return print.take();
}

}  // namespace fovea
