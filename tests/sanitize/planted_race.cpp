// Races for ThreadSanitizer to find, and their correct twins: planted_race NAME.

#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr int kSteps = 10000;

int openmp_race() {
  int sum = 0;
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < kSteps; ++i) sum += i;
  return sum;
}

int openmp_reduction() {
  int sum = 0;
#pragma omp parallel for num_threads(2) reduction(+ : sum)
  for (int i = 0; i < kSteps; ++i) sum += i;
  return sum;
}

// One phase writes what the next reads from the other thread; the implicit barrier orders them.
int openmp_barrier() {
  std::vector<int> first(kSteps), second(kSteps);
#pragma omp parallel num_threads(2)
  {
#pragma omp for
    for (int i = 0; i < kSteps; ++i) first[static_cast<size_t>(i)] = i;
#pragma omp for
    for (int i = 0; i < kSteps; ++i) {
      second[static_cast<size_t>(i)] = first[static_cast<size_t>(kSteps - 1 - i)];
    }
  }
  return second[0];
}

int thread_race() {
  int sum = 0;
  std::thread other([&] {
    for (int i = 0; i < kSteps; ++i) sum += i;
  });
  for (int i = 0; i < kSteps; ++i) sum += i;
  other.join();
  return sum;
}

int thread_join() {
  int sum = 0;
  std::thread other([&] {
    for (int i = 0; i < kSteps; ++i) sum += i;
  });
  other.join();
  for (int i = 0; i < kSteps; ++i) sum += i;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  int result = 0;
  if (name == "openmp_race") {
    result = openmp_race();
  } else if (name == "openmp_reduction") {
    result = openmp_reduction();
  } else if (name == "openmp_barrier") {
    result = openmp_barrier();
  } else if (name == "thread_race") {
    result = thread_race();
  } else if (name == "thread_join") {
    result = thread_join();
  } else {
    std::fprintf(stderr, "usage: planted_race NAME\n");
    return 2;
  }
  std::printf("%d\n", result);
  return 0;
}
