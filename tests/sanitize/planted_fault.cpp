// Faults for AddressSanitizer and UndefinedBehaviorSanitizer to find: planted_fault NAME.

#include <cstdio>
#include <limits>
#include <string_view>

namespace {

// Values that the compiler cannot know.
volatile int zero = 0;
volatile int largest = std::numeric_limits<int>::max();

int heap_overflow() {
  int* volatile values = new int[4]{};
  const int result = values[4 + zero];
  delete[] values;
  return result;
}

int use_after_free() {
  int* volatile values = new int[4]{};
  delete[] values;
  return values[zero];
}

int leak() {
  int* volatile values = new int[4]{};
  const int result = values[zero];
  values = nullptr;
  return result;
}

int signed_overflow() { return largest + 1 + zero; }

int misaligned() {
  alignas(8) char bytes[8] = {};
  return *reinterpret_cast<const int*>(bytes + 1 + zero);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  int result = 0;
  if (name == "heap_overflow") {
    result = heap_overflow();
  } else if (name == "use_after_free") {
    result = use_after_free();
  } else if (name == "leak") {
    result = leak();
  } else if (name == "signed_overflow") {
    result = signed_overflow();
  } else if (name == "misaligned") {
    result = misaligned();
  } else {
    std::fprintf(stderr, "usage: planted_fault NAME\n");
    return 2;
  }
  std::printf("%d\n", result);
  return 0;
}
