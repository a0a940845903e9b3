// Many threads on what calls share: the caches of a selector and a layer, recorded calls, the
// registry, bound packages, plugins. Made for ThreadSanitizer; without it the answers still count.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "fovea/fovea.hpp"
#include "fovea/plugin_loader.hpp"
#include "src/core/random_inputs.hpp"
#include "tests/select/fakes.hpp"

namespace fovea {
namespace {

using test::FakeBackend;
using test::FakePlatform;

constexpr int kThreads = 8;
constexpr int kCalls = 200;

// Starts the threads together, so that they meet in the first, uncached calls.
template <class Work>
void run_threads(Work work) {
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (--waiting; waiting.load() > 0;) std::this_thread::yield();
      work(t);
    });
  for (std::thread& thread : threads) thread.join();
}

Problem problem_of(int64_t head_dim, int64_t seq = 16) {
  Problem p;
  p.seq_q = p.seq_kv = seq;
  p.head_dim = p.dim_v = head_dim;
  fill_strides(p);
  return p;
}

AttentionConfig config_of(BackendName backend) {
  AttentionConfig config;
  AttentionSpec& spec = config.default_spec.emplace();
  spec.backend = backend;
  if (backend == backend::SPARGE_ATTN) {
    spec.block_sparse.emplace().sparsity = 0.9;
    spec.block_sparse->block_size = 64;
  }
  return config;
}

std::vector<uint8_t> bytes_of(const TensorView& view) {
  const auto* data = static_cast<const uint8_t*>(view.data);
  return {data, data + static_cast<size_t>(view.numel()) * (view.dtype.bits / 8)};
}

constexpr BackendName kBackends[] = {backend::FLASH_ATTN, backend::TORCH_SDPA, backend::REFERENCE,
                                     backend::SPARGE_ATTN};

TEST(Concurrency, eight_threads_with_own_configurations_get_their_own_receipts) {
  run_threads([](int t) {
    const BackendName backend = kBackends[t % 4];
    const auto layer = Attention::create({}, config_of(backend), &serial_executor());
    ASSERT_TRUE(layer.has_value());
    const auto inputs =
        make_random_inputs(*parse_problem(t < 4 ? "f32 b1 h2 s70 d8" : "bf16 b2 h2 hk=1 s40 d16"));
    ASSERT_TRUE(inputs.has_value());
    std::vector<uint8_t> first;
    for (int call = 0; call < kCalls; ++call) {
      const auto receipt = layer->run(inputs->tensors());
      ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
      ASSERT_EQ((*receipt)->backend, backend);
      if (call == 0) first = bytes_of(inputs->tensors().out);
      ASSERT_EQ(first, bytes_of(inputs->tensors().out)) << call;
    }
  });
}

// One layer for all: its plans are made and taken side by side, with metadata that differs.
TEST(Concurrency, calls_of_one_layer_do_not_see_each_other) {
  const auto layer = Attention::create({}, config_of(backend::SPARGE_ATTN), &serial_executor());
  ASSERT_TRUE(layer.has_value());
  run_threads([&](int t) {
    const auto inputs = make_random_inputs(
        *parse_problem("f32 b1 h1 s8 sk=" + std::to_string(900 + t % 3) + " d8"));
    ASSERT_TRUE(inputs.has_value());
    for (int call = 0; call < kCalls; ++call) {
      AttentionMetadata metadata;
      metadata.protected_kv_prefix = (call + t) % 2 == 0 ? 0 : 65;
      CallOptions options;
      options.metadata = &metadata;
      const auto receipt = layer->run(inputs->tensors(), options);
      ASSERT_TRUE(receipt.has_value()) << receipt.error().message;
      // 8 of 15 blocks; two more where two are protected.
      ASSERT_EQ((*receipt)->density, (call + t) % 2 == 0 ? 8.0 / 15 : 10.0 / 15);
    }
  });
}

// More problems than a selector keeps, so that its cache is cleared while others read it.
TEST(Concurrency, full_caches_are_cleared_under_readers) {
  const auto platform = std::make_shared<FakePlatform>();
  platform->order = {backend::SAGE_ATTN};
  const auto fake = std::make_shared<FakeBackend>("test:fake", int64_t{1} << 40);
  ASSERT_TRUE(register_backend(backend::SAGE_ATTN, fake).has_value());
  const AttentionConfig config;
  const Selector selector(platform, config);
  run_threads([&](int t) {
    for (int64_t n = 0; n < 700; ++n) {
      const Problem problem = problem_of(8, 1 + n * kThreads + t);
      const auto decision = selector.decide({}, problem, {});
      ASSERT_EQ(decision->backend, backend::SAGE_ATTN);
      ASSERT_EQ(decision->problem.seq_q, problem.seq_q);
    }
  });
  clear_override(backend::SAGE_ATTN);
}

// What stands behind a name changes while it is called: every answer is one of the two.
TEST(Concurrency, registrations_meet_calls) {
  const auto platform = std::make_shared<FakePlatform>();
  platform->order = {backend::SAGE_ATTN};
  const AttentionConfig config;
  const Selector selector(platform, config);
  const auto one = std::make_shared<FakeBackend>("test:one");
  const auto two = std::make_shared<FakeBackend>("test:two");
  ASSERT_TRUE(register_backend(backend::SAGE_ATTN, one).has_value());
  run_threads([&](int t) {
    for (int call = 0; call < kCalls; ++call) {
      if (t == 0) {
        ASSERT_TRUE(register_backend(backend::SAGE_ATTN, call % 2 == 0 ? two : one).has_value());
      }
      const auto decision = selector.decide({}, problem_of(8 + call % 5), {});
      ASSERT_EQ(decision->report.support, SupportStatus::supported);
      ASSERT_TRUE(decision->report.path == "test:one" || decision->report.path == "test:two");
      ASSERT_EQ(decision->implementation->path(), decision->report.path);
    }
  });
  clear_override(backend::SAGE_ATTN);
}

TEST(Concurrency, packages_are_bound_and_taken_away_under_calls) {
  const DeviceFacts facts = parse_facts(PlatformId::cuda, "sm=100,fa4=4.0").value();
  run_threads([&](int t) {
    const auto layer =
        Attention::create({}, config_of(backend::FLASH_ATTN), &serial_executor(), facts);
    ASSERT_TRUE(layer.has_value());
    for (int call = 0; call < kCalls; ++call) {
      if (t < 2) {
        PackageKernel kernel;
        kernel.package = "fa4";
        kernel.run = [](const PackageCall&) { return Status{}; };
        ASSERT_TRUE(bind_package(std::move(kernel)).has_value());
        unbind_package("fa4");
      }
      const ExecutionPathResult r =
          layer->resolve_execution_path(*parse_problem("bf16 b1 h1 s8 d64"), {});
      // Bound just then or not; nothing else.
      if (r.support == SupportStatus::unmigrated)
        ASSERT_EQ(r.path, "fa4_dense");
      else
        ASSERT_EQ(r.reasons.at(0).code, ReasonCode::not_registered) << sentence(r.reasons);
    }
  });
}

TEST(Concurrency, recordings_of_one_layer_run_side_by_side) {
  const auto layer = Attention::create({}, config_of(backend::FLASH_ATTN), &serial_executor());
  ASSERT_TRUE(layer.has_value());
  const Problem problem = *parse_problem("f32 b1 h2 s40 d16");
  const auto wanted = make_random_inputs(problem);
  ASSERT_TRUE(wanted.has_value());
  ASSERT_TRUE(layer->run(wanted->tensors()).has_value());
  const auto expected = bytes_of(wanted->tensors().out);
  run_threads([&](int) {
    const auto recorded = layer->record(problem);
    ASSERT_TRUE(recorded.has_value()) << recorded.error().message;
    const auto inputs = make_random_inputs(problem);
    ASSERT_TRUE(inputs.has_value());
    for (int call = 0; call < kCalls; ++call) {
      ASSERT_TRUE(recorded->run(inputs->tensors(), {}).has_value());
      ASSERT_EQ(expected, bytes_of(inputs->tensors().out));
    }
  });
}

// Loading is serial inside: everybody gets the plugin, and resolves through it meanwhile.
TEST(Concurrency, plugins_are_loaded_and_used_by_many_threads) {
  namespace fs = std::filesystem;
  const fs::path no_entry = fs::path(testing::TempDir()) / "no_entry.so";
  const fs::path sound = fs::path(testing::TempDir()) / "options_sound.so";
  fs::copy_file(FAULTY_PLUGIN, sound, fs::copy_options::overwrite_existing);
  fs::copy_file(NO_ENTRY_PLUGIN, no_entry, fs::copy_options::overwrite_existing);
  run_threads([&](int t) {
    for (int call = 0; call < 20; ++call) {
      const auto loaded = load_plugin(t % 2 == 0 ? sound.string() : no_entry.string());
      ASSERT_EQ(loaded.has_value(), t % 2 == 0);
      if (!loaded) {
        ASSERT_NE(loaded.error().message.find("fovea_plugin_entry"), std::string::npos);
        continue;
      }
      const auto backend =
          load_backend(backend::REFERENCE, "plugin:" + loaded->file + "#supported");
      ASSERT_TRUE(backend.has_value()) << backend.error().message;
      const auto report =
          (*backend)->resolve(backend::REFERENCE, problem_of(8), nullptr, ExecutionContext());
      ASSERT_EQ(report.support, SupportStatus::supported) << sentence(report.reasons);
    }
  });
}

}  // namespace
}  // namespace fovea
