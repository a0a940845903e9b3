// Masks of the authors' generator and counts of large ones, from the files of a folder.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "fovea/sparse.hpp"

namespace fovea::test {

struct KnownMask {
  RadialPattern pattern;
  std::string text;     // rows of # and ., or empty
  int64_t active = -1;  // with the hash, where there is no text
  uint64_t hash = 0;
};

inline std::string describe(const RadialPattern& p) {
  std::ostringstream out;
  out << p.frames << " x " << p.tokens_per_frame << " + " << p.text_tokens << " block "
      << p.block_size << " decay " << p.decay_factor << ' ' << name(p.model) << ' ' << name(p.rule);
  return out.str();
}

inline RadialPattern read_pattern(std::istream& in) {
  RadialPattern p;
  std::string model;
  in >> p.frames >> p.tokens_per_frame >> p.text_tokens >> p.block_size >> p.decay_factor >> model;
  p.model = parse_video_model(model).value();
  p.rule = RadialRule::authors;
  return p;
}

inline std::vector<KnownMask> drawn_masks(const std::string& folder) {
  std::ifstream file(folder + "/radial_masks.txt");
  std::vector<KnownMask> out;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with("# ")) continue;
    if (line.front() == '#' || line.front() == '.') {
      out.back().text += line + '\n';
    } else {
      std::istringstream in(line);
      out.push_back({read_pattern(in), {}, -1, 0});
    }
  }
  return out;
}

inline std::vector<KnownMask> counted_masks(const std::string& folder) {
  std::ifstream file(folder + "/radial_numbers.txt");
  std::vector<KnownMask> out;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream in(line);
    KnownMask known{read_pattern(in), {}, -1, 0};
    std::string rule;
    in >> rule >> known.active >> std::hex >> known.hash;
    known.pattern.rule = parse_radial_rule(rule).value();
    out.push_back(known);
  }
  return out;
}

}  // namespace fovea::test
