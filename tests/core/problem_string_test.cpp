#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fovea/problem.hpp"
#include "tests/core/random_problem.hpp"
#include "tests/golden/golden.hpp"

namespace fovea {
namespace {

Problem parsed(std::string_view text) {
  Result<Problem> result = parse_problem(text);
  EXPECT_TRUE(result) << text << ": " << result.error().message;
  return result.value_or(Problem{});
}

std::string error_of(std::string_view text) {
  const Result<Problem> result = parse_problem(text);
  if (result) return "accepted as: " + to_string(*result);
  EXPECT_EQ(ErrorCode::invalid_problem, result.error().code) << text;
  return result.error().message;
}

TEST(ProblemString, the_five_plain_words_give_a_dense_problem) {
  const Problem p = parsed("bf16 b1 h24 s4096 d128");
  EXPECT_EQ(kBF16, p.dtype);
  EXPECT_EQ(kBF16, p.out_dtype);
  EXPECT_EQ(1, p.batch);
  EXPECT_EQ(24, p.heads_q);
  EXPECT_EQ(24, p.heads_kv);
  EXPECT_EQ(4096, p.seq_q);
  EXPECT_EQ(4096, p.seq_kv);
  EXPECT_EQ(128, p.head_dim);
  EXPECT_EQ(128, p.dim_v);
  EXPECT_TRUE(p.dense());
  EXPECT_EQ("bf16 b1 h24 s4096 d128", to_string(p));
}

TEST(ProblemString, words_come_in_any_order_and_are_printed_in_one) {
  EXPECT_EQ(
      "f16 b2 h8 s16 d64 hk=2 sk=32 dv=40 layout=bhsd outlayout=bshd mask=causal+bool maskdims=bhq "
      "maskdtype=u8 window=4,0 kvlen=32,7 scale=0.125 lse=1 out=f32 strides=bhsd_view align=16 "
      "sparse=radial(decay=1.0,frames=16) seed=18446744073709551615",
      to_string(parsed("seed=18446744073709551615 sparse=radial(decay=1.0,frames=16) align=16 "
                       "strides=bhsd_view out=float32 lse=1\tscale=.125 kvlen=32,7 window=4,0 "
                       "maskdtype=uint8 maskdims=qhb mask=bool+causal outlayout=NHD layout=HND "
                       "dv=40 sk=32 hk=2 d64\n s16 h8 b2 half ")));
}

TEST(ProblemString, defaults_are_not_printed) {
  EXPECT_EQ("f32 b1 h2 s3 d4",
            to_string(parsed("f32 b1 h2 s3 d4 hk=2 sk=3 dv=4 layout=bshd outlayout=bshd mask=none "
                             "window=-1,-1 lse=0 out=f32 strides=contig align=64 seed=0")));
}

TEST(ProblemString, masks_have_the_usual_axes_and_types) {
  EXPECT_EQ((MaskTensor{MaskKind::keys, kBool, true, false, false}),
            parsed("f32 b1 h1 s1 d1 mask=keys").mask);
  EXPECT_EQ((MaskTensor{MaskKind::boolean, kBool, true, false, true}),
            parsed("f32 b1 h1 s1 d1 mask=bool").mask);
  EXPECT_EQ((MaskTensor{MaskKind::bias, kF32, true, false, true}),
            parsed("f32 b1 h1 s1 d1 mask=bias").mask);
  EXPECT_EQ((MaskTensor{MaskKind::bias, kF16, false, false, false}),
            parsed("f32 b1 h1 s1 d1 mask=bias maskdims=none maskdtype=f16").mask);
  EXPECT_TRUE(parsed("f32 b1 h1 s1 d1 mask=keys+causal").causal);
}

TEST(ProblemString, documents_make_a_packed_problem) {
  const Problem p = parsed("f32 b1 h2 s10 d8 sk=7 docs=4:0,6:7");
  EXPECT_EQ(Layout::packed, p.layout);
  EXPECT_EQ(2, p.documents);
  EXPECT_EQ(6, p.max_document_q);
  EXPECT_EQ(7, p.max_document_kv);
  EXPECT_EQ("f32 b1 h2 s10 d8 sk=7 layout=packed docs=4:0,6:7", to_string(p));
}

TEST(ProblemString, packed_alone_is_one_document) {
  const Problem p = parsed("f32 b1 h2 s10 d8 sk=7 layout=packed");
  EXPECT_EQ((std::vector<Document>{{10, 7}}), p.document_values);
  EXPECT_EQ("f32 b1 h2 s10 d8 sk=7 layout=packed", to_string(p));
}

TEST(ProblemString, unknown_lengths_and_documents_read_back) {
  for (const char* text :
       {"f32 b2 h1 s4 d8 kvlen=?", "f32 b1 h1 s4 d8 layout=packed ndocs=3 maxdoc=2:4",
        "f32 b1 h1 s0 d8 layout=packed ndocs=0 maxdoc=0:0"})
    EXPECT_EQ(text, to_string(parsed(text)));
  EXPECT_TRUE(parsed("f32 b2 h1 s4 d8 kvlen=?").has_kv_lengths);
}

TEST(ProblemString, pieces_are_rows_and_keys) {
  const char* text = "f32 b2 h1 s6 d8 mask=bool pieces=2:2c,3:5,1:0";
  const Problem p = parsed(text);
  EXPECT_EQ((std::vector<Piece>{{2, 2, true}, {3, 5, false}, {1, 0, false}}), p.pieces);
  EXPECT_FALSE(p.dense());
  EXPECT_EQ(text, to_string(p));
}

TEST(ProblemString, custom_strides_read_back) {
  const char* text = "f32 b2 h1 s4 d8 strides=custom:1,2,3/4,5,6/7,8,9";
  const Problem p = parsed(text);
  EXPECT_EQ((Strides{1, 2, 3}), p.q_strides);
  EXPECT_EQ((Strides{7, 8, 9}), p.v_strides);
  EXPECT_EQ(text, to_string(p));
}

TEST(ProblemString, sparse_patterns_keep_their_parameters_as_text) {
  const Problem p = parsed("f32 b1 h1 s4 d8 sparse=radial:authors(decay=1.0,frames=16)");
  ASSERT_TRUE(p.sparse);
  EXPECT_EQ("radial:authors", p.sparse->name);
  EXPECT_EQ((std::pair<std::string, std::string>("decay", "1.0")), p.sparse->parameters[0]);
  EXPECT_EQ("f32 b1 h1 s4 d8 sparse=local", to_string(parsed("f32 b1 h1 s4 d8 sparse=local()")));
}

TEST(ProblemString, every_example_of_the_documentation_is_valid) {
  std::ifstream file(std::filesystem::path(FOVEA_SOURCE_DIR) / "docs" / "problem_string.md");
  ASSERT_TRUE(file);
  int examples = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("    f32 ") && !line.starts_with("    bf16 ")) continue;
    EXPECT_EQ(line.substr(4), to_string(parsed(line))) << line;
    ++examples;
  }
  EXPECT_GE(examples, 5);
}

// Every kind of mistake, with the column of the word and what is accepted.
TEST(ProblemString, errors_name_the_column_and_what_is_accepted) {
  const char* const wrong[] = {
      "",
      "f32 b1 h2 s3",
      "b1 h2 s3 d4",
      "f64 b1 h2 s3 d4",
      "f23 b1 h2 s3 d4",
      "f32 b1 h2 s3 d4 hq=2",
      "f32 b1 h2 s3 d4 hk=2 hk=1",
      "f32 b1 b2 h2 s3 d4",
      "f32 f16 b1 h2 s3 d4",
      "f32 b-1 h2 s3 d4",
      "f32 b1.5 h2 s3 d4",
      "f32 b1 h2 s9223372036854775808 d4",
      "f32 b1 h2 s9223372036854775807 d4",
      "f32 b1 h5 s3 d4 hk=2",
      "f32 b1 h0 s3 d4",
      "f32 b1 h2 s3 d0",
      "f32 b1 h2 s3 d4 dv=0",
      "f32 b1 h2 s3 d4 mask=padding",
      "f32 b1 h2 s3 d4 mask=causl",
      "f32 b1 h2 s3 d4 mask=keys+bias",
      "f32 b1 h2 s3 d4 mask=causal+causal",
      "f32 b1 h2 s3 d4 mask=none+causal",
      "f32 b1 h2 s3 d4 mask=",
      "f32 b1 h2 s3 d4 maskdims=b",
      "f32 b1 h2 s3 d4 mask=bool maskdims=bx",
      "f32 b1 h2 s3 d4 mask=keys maskdims=q",
      "f32 b1 h2 s3 d4 mask=bool maskdtype=f32",
      "f32 b1 h2 s3 d4 mask=bool maskdtype=int7",
      "f32 b1 h2 s3 d4 window=1",
      "f32 b1 h2 s3 d4 window=1,-2",
      "f32 b1 h2 s3 d4 mask=causal window=1,1",
      "f32 b1 h2 s3 d4 pieces=3",
      "f32 b1 h2 s3 d4 pieces=1:1c,2:4",
      "f32 b1 h2 s3 d4 pieces=1:1c,1:3",
      "f32 b1 h2 s3 d4 pieces=0:1,3:3",
      "f32 b1 h2 s3 d4 mask=causal pieces=3:3",
      "f32 b2 h2 s3 d4 kvlen=1",
      "f32 b2 h2 s3 d4 kvlen=1,4",
      "f32 b2 h2 s3 d4 kvlen=1,x",
      "f32 b1 h2 s3 d4 docs=1:1",
      "f32 b1 h2 s3 d4 docs=1-1",
      "f32 b2 h2 s3 d4 docs=3:3",
      "f32 b1 h2 s3 d4 layout=bshd docs=3:3",
      "f32 b1 h2 s3 d4 docs=3:3 ndocs=1",
      "f32 b1 h2 s3 d4 layout=packed ndocs=1",
      "f32 b1 h2 s3 d4 layout=packed ndocs=2 maxdoc=1:3",
      "f32 b1 h2 s3 d4 layout=packed mask=keys",
      "f32 b1 h2 s3 d4 layout=packed kvlen=3",
      "f32 b1 h2 s3 d4 layout=sbhd",
      "f32 b1 h2 s3 d4 layout=packed outlayout=bshd",
      "f32 b1 h2 s3 d4 scale=0",
      "f32 b1 h2 s3 d4 scale=nan",
      "f32 b1 h2 s3 d4 lse=yes",
      "f16 b1 h2 s3 d4 out=bf16",
      "f32 b1 h2 s3 d4 strides=fused",
      "f32 b1 h2 s3 d4 sk=5 strides=fused_qkv",
      "f32 b1 h2 s3 d4 strides=custom:1,2,3",
      "f32 b1 h2 s3 d4 strides=custom:1,2,3/1,2,3/1,2,-3",
      "f32 b2 h2 s3 d4 strides=custom:9223372036854775807,2,3/1,2,3/1,2,3",
      "f32 b1 h2 s3 d4 align=3",
      "f32 b1 h2 s3 d4 align=128",
      "f32 b1 h2 s3 d4 sparse=radial(a=1",
      "f32 b1 h2 s3 d4 sparse=radial(a)",
      "f32 b1 h2 s3 d4 sparse=",
      "f32 b1 h2 s3 d4 sparse=radial(a=1,a=2)",
      "f32 b1 h2 s3 d4 seed=-1",
  };
  std::string report;
  for (const char* text : wrong) report += std::string(text) + "\n  " + error_of(text) + "\n";
  golden::expect_equal("problem_string.txt", report);
}

TEST(ProblemString, every_random_problem_reads_back_as_itself) {
  const uint64_t seed = 20240117;
  RecordProperty("seed", static_cast<int>(seed));
  RandomProblems problems(seed);
  for (int i = 0; i < 10'000; ++i) {
    const Problem p = problems.next();
    const std::string text = to_string(p);
    ASSERT_TRUE(validate(p)) << "seed " << seed << ", case " << i << ": " << text << ": "
                             << validate(p).error().message;
    const Result<Problem> again = parse_problem(text);
    ASSERT_TRUE(again) << "seed " << seed << ", case " << i << ": " << text << ": "
                       << again.error().message;
    ASSERT_EQ(p, *again) << "seed " << seed << ", case " << i << ": " << text;
    ASSERT_EQ(hash_value(p), hash_value(*again)) << text;
    ASSERT_EQ(text, to_string(*again));
  }
}

// Cutting, doubling and replacing characters never crashes and never yields an invalid problem.
TEST(ProblemString, damaged_strings_are_refused_or_give_valid_problems) {
  const uint64_t seed = 4242;
  RandomProblems problems(seed);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = to_string(problems.next());
    const size_t at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text.erase(at, 1 + random() % 4);
        break;
      case 1:
        text.insert(at, text.substr(at, 1 + random() % 4));
        break;
      default:
        text[at] = static_cast<char>(random() % 256);
    }
    const Result<Problem> result = parse_problem(text);
    if (!result) {
      ++refused;
      ASSERT_TRUE(result.error().message.starts_with("problem string, column "));
      continue;
    }
    ASSERT_TRUE(validate(*result)) << "seed " << seed << ", case " << i << ": " << text;
    ASSERT_EQ(*result, parsed(to_string(*result))) << text;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 9000);
}

}  // namespace
}  // namespace fovea
