// The worker side of compare.py: answers each line "<runs> <problem string>" with one JSON line.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace compare {

// The part of the problem string that every library understands.
struct Shape {
  std::string dtype;
  long batch = 1;
  long heads = 1;
  long seq_q = 1;
  long seq_kv = 0;
  long head_dim = 1;
};

inline Shape parse_shape(const std::string& problem) {
  Shape shape;
  std::istringstream words(problem);
  words >> shape.dtype;
  for (std::string word; words >> word;) {
    if (word == "lse=1") continue;
    if (word.rfind("sk=", 0) == 0) {
      shape.seq_kv = std::stol(word.substr(3));
      continue;
    }
    const long value = std::stol(word.substr(1));
    switch (word[0]) {
      case 'b':
        shape.batch = value;
        break;
      case 'h':
        shape.heads = value;
        break;
      case 's':
        shape.seq_q = value;
        break;
      case 'd':
        shape.head_dim = value;
        break;
      default:
        throw std::runtime_error("cannot run " + word);
    }
  }
  if (shape.seq_kv == 0) shape.seq_kv = shape.seq_q;
  return shape;
}

inline std::vector<float> normal_values(long count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

// `prepare` makes a call of the problem ready and returns it; it may throw. The last one is kept,
// so that the rounds of one problem do not prepare it again.
inline void serve(const std::function<std::function<void()>(const std::string&)>& prepare) {
  std::string ready;
  std::function<void()> call;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    long runs = 0;
    std::string problem;
    words >> runs >> std::ws;
    std::getline(words, problem);
    try {
      if (problem != ready) {
        call = nullptr;
        call = prepare(problem);
        ready = problem;
      }
      std::printf("{\"ms\": [");
      for (long i = 0; i < runs; ++i) {
        const auto start = std::chrono::steady_clock::now();
        call();
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - start;
        std::printf("%s%.6f", i == 0 ? "" : ", ", took.count());
      }
      std::printf("]}\n");
    } catch (const std::exception& error) {
      ready.clear();
      std::string text = error.what();
      for (char& c : text) {
        if (c == '"' || c == '\\' || c == '\n') c = ' ';
      }
      std::printf("{\"error\": \"%s\"}\n", text.c_str());
    }
    std::fflush(stdout);
  }
}

}  // namespace compare
