#include "fovea/config.hpp"
#include "src/core/env.hpp"

namespace fovea {

std::optional<std::string> environment_backend() {
  env::warn_once();
  return env::read(env::Variable::backend);
}

}  // namespace fovea
