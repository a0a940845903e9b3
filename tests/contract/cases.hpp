// Problems that every backend is compared with the oracle on. Names become test names.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace fovea::contract {

struct Case {
  std::string name;
  std::string problem;
};

std::vector<Case> cases();

std::ostream& operator<<(std::ostream& out, const Case& c);

}  // namespace fovea::contract
