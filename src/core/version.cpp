#include "fovea/version.hpp"

#define FOVEA_TEXT_INNER(x) #x
#define FOVEA_TEXT(x) FOVEA_TEXT_INNER(x)

namespace fovea {

const char* version() noexcept {
  return FOVEA_TEXT(FOVEA_VERSION_MAJOR) "." FOVEA_TEXT(FOVEA_VERSION_MINOR) "." FOVEA_TEXT(
      FOVEA_VERSION_PATCH);
}

}  // namespace fovea
