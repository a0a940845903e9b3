#include "tests/contract/cases.hpp"

#include <ostream>

namespace fovea::contract {
namespace {

// A word of a problem string as part of a test's name.
std::string label(const std::string& text) {
  std::string out;
  for (char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) out += c;
  return out;
}

const char* const kDTypes[] = {"f32", "f16", "bf16"};

void add_masks(std::vector<Case>& out) {
  const char* const kKeysAxes[] = {"b", "none"};
  const char* const kAxes[] = {"none", "b", "h", "q", "bh", "bq", "hq", "bhq"};
  for (const char* dtype : {"bool", "u8", "i32", "i64", "f32", "f16", "bf16"}) {
    const bool additive = dtype[0] == 'f' || dtype[1] == 'f';
    for (const char* axes : kKeysAxes)
      out.push_back({std::string("Keys_") + dtype + "_" + axes,
                     std::string("f32 b2 h2 s19 d16 sk=70 mask=keys maskdims=") + axes +
                         " maskdtype=" + dtype + " lse=1"});
    for (const char* axes : kAxes)
      out.push_back({std::string(additive ? "Bias_" : "Bool_") + dtype + "_" + axes,
                     std::string("f32 b2 h4 s19 d16 hk=2 sk=70 mask=") +
                         (additive ? "bias" : "bool") + " maskdims=" + axes +
                         " maskdtype=" + dtype + " lse=1"});
  }
  for (const char* q : {"f16", "bf16"})
    for (const char* mask : {"f32", "f16", "bf16"})
      out.push_back({std::string("Bias_") + mask + "_on_" + q,
                     std::string(q) + " b2 h2 s33 d32 mask=bias maskdtype=" + mask + " lse=1"});
}

void add_lengths(std::vector<Case>& out) {
  for (const char* dtype : kDTypes) {
    const std::string d = dtype;
    out.push_back({"Lengths_" + d, d + " b4 h2 s40 d32 sk=130 kvlen=0,1,77,130 lse=1"});
    out.push_back(
        {"LengthsCausal_" + d, d + " b4 h2 s60 d16 sk=80 mask=causal kvlen=0,30,60,80 lse=1"});
    out.push_back({"LengthsMaskWindow_" + d,
                   d + " b3 h2 s50 d16 sk=90 mask=bool window=12,9 kvlen=50,71,90 lse=1"});
    out.push_back({"CausalSquare_" + d, d + " b1 h2 s129 d32 mask=causal lse=1"});
    out.push_back({"CausalMoreKeys_" + d, d + " b1 h2 s50 d32 sk=177 mask=causal lse=1"});
    out.push_back({"CausalMoreQueries_" + d, d + " b1 h2 s177 d32 sk=50 mask=causal lse=1"});
    out.push_back({"CausalBool_" + d, d + " b2 h2 s65 d16 mask=causal+bool lse=1"});
    out.push_back({"CausalBias_" + d, d + " b2 h2 s65 d16 mask=causal+bias lse=1"});
    out.push_back({"CausalKeys_" + d, d + " b2 h2 s65 d16 sk=90 mask=causal+keys lse=1"});
    for (const char* window : {"0,0", "5,3", "64,64", "-1,7", "7,-1", "200,0", "1000,1000"})
      out.push_back({"Window_" + label(window) + "_" + (window[0] == '-' ? "left_" : "") + d,
                     d + " b1 h2 s140 d16 sk=150 window=" + window + " lse=1"});
    out.push_back({"WindowCausal_" + d, d + " b1 h2 s140 d16 mask=causal window=20,-1 lse=1"});
    out.push_back({"WindowMoreQueries_" + d, d + " b1 h2 s150 d16 sk=60 window=10,10 lse=1"});
    out.push_back(
        {"Packed_" + d, d + " b1 h3 s120 d32 sk=141 layout=packed docs=50:60,0:0,3:1,67:80 lse=1"});
    out.push_back({"PackedEmptyKeys_" + d,
                   d + " b1 h2 s20 d16 sk=12 layout=packed docs=7:0,13:12,0:0 lse=1"});
    out.push_back({"PackedCausal_" + d, d + " b1 h4 s130 d16 hk=2 sk=160 layout=packed mask=causal "
                                            "docs=64:64,30:10,36:86 lse=1"});
    out.push_back({"PackedWindow_" + d,
                   d + " b1 h2 s130 d16 layout=packed window=9,4 docs=64:64,66:66 lse=1"});
    out.push_back({"PackedFused_" + d,
                   d + " b1 h2 s100 d16 layout=packed docs=1:1,99:99 lse=1 strides=fused_qkv"});
  }
}

void add_sizes(std::vector<Case>& out) {
  for (const char* dtype : kDTypes) {
    const std::string d = dtype;
    for (const char* hk : {"1", "2", "4", "12"})
      out.push_back(
          {"HeadsKv" + std::string(hk) + "_" + d, d + " b2 h12 s33 d24 hk=" + hk + " sk=47 lse=1"});
    for (int dim : {1,  2,  3,  5,   7,   8,   15,  16,  17,  24,  31,  33,  40,  63,  64, 65,
                    72, 80, 96, 100, 127, 128, 129, 160, 192, 255, 256, 257, 320, 511, 512})
      out.push_back({"HeadDim" + std::to_string(dim) + "_" + d,
                     d + " b1 h2 s9 d" + std::to_string(dim) + " sk=70 lse=1"});
    for (const char* dims :
         {"16 dv=40", "40 dv=16", "192 dv=128", "1 dv=512", "512 dv=1", "96 dv=33", "80 dv=48"})
      out.push_back(
          {"DimV_" + label(dims) + "_" + d, d + " b1 h2 s17 d" + dims + " hk=1 sk=66 lse=1"});
    for (int tail : {1, 2, 63, 64, 65, 127, 128, 129, 200, 209, 1000})
      out.push_back({"Tail" + std::to_string(tail) + "_" + d,
                     d + " b1 h1 s" + std::to_string(tail) + " d20 lse=1"});
    for (int tail : {1, 63, 65, 127, 129, 200, 209, 1000})
      out.push_back({"TailKeys" + std::to_string(tail) + "_" + d,
                     d + " b1 h2 s5 d64 sk=" + std::to_string(tail) + " lse=1"});
    out.push_back({"OneRow_" + d, d + " b3 h2 s1 d64 sk=300 lse=1"});
    out.push_back({"LongKeys_" + d, d + " b1 h1 s3 d64 sk=20011 lse=1"});
    out.push_back({"Scale_" + d, d + " b1 h2 s40 d32 scale=0.03125 lse=1"});
    out.push_back({"LargeScale_" + d, d + " b1 h2 s40 d32 scale=2 lse=1"});
    out.push_back({"NoLse_" + d, d + " b1 h2 s40 d32"});
    out.push_back({"ManyItems_" + d, d + " b700 h1 s2 d8 sk=3 lse=1"});
  }
  for (const char* dtype : {"f16", "bf16"})
    out.push_back({std::string("F32Out_") + dtype,
                   std::string(dtype) + " b2 h2 s65 d64 mask=bool lse=1 out=f32"});
}

void add_layouts(std::vector<Case>& out) {
  for (const char* dtype : kDTypes) {
    const std::string d = dtype;
    for (const char* layout : {"bshd", "bhsd"})
      for (const char* out_layout : {"bshd", "bhsd"})
        for (const char* strides : {"contig", "bhsd_view", "expanded", "fused_qkv"})
          out.push_back({std::string("Layout_") + layout + "_to_" + out_layout + "_" +
                             label(strides) + "_" + d,
                         d + " b2 h4 s37 d16 hk=2 layout=" + layout + " outlayout=" + out_layout +
                             " mask=bool lse=1 strides=" + strides});
    out.push_back({"FusedDimV_" + d, d + " b2 h4 s37 d24 hk=2 dv=40 lse=1 strides=fused_qkv"});
    out.push_back({"CustomStrides_" + d, d + " b2 h2 s21 d8 sk=33 lse=1 "
                                             "strides=custom:1000,40,17/0,16,1024/3000,64,0"});
    out.push_back({"Unaligned_" + d, d + " b1 h3 s21 d7 sk=33 lse=1 align=4"});
  }
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> out;
  add_masks(out);
  add_lengths(out);
  add_sizes(out);
  add_layouts(out);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.problem; }

}  // namespace fovea::contract
