// Work of a stream, captured once and launched many times: for the program and the tests.
#pragma once

#include <functional>
#include <memory>

#include "fovea/backend.hpp"
#include "fovea/error.hpp"

namespace fovea::cuda {

class Graph {
 public:
  // Captures what `work` puts on the stream; nothing of it runs. Errors: those of `work`;
  // not_built; device_error, also for work that cannot be captured.
  static Result<Graph> capture(Stream stream, const std::function<Status()>& work);

  // Runs the captured work in the order of the stream. Does not wait.
  Status launch(Stream stream) const;

 private:
  std::shared_ptr<void> executable_;
};

}  // namespace fovea::cuda
