// A trainer whose states do not fit into its memory, and what a user sees of states in a file.

#include "support/catch.hpp"
#include "support/limited_memory.hpp"
#include "support/stages.hpp"
#include "support/tiled_model.hpp"

#include "offload_model.hpp"

#include <zero/zero.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace zero::test::offload_test {

namespace {

template <int N>
using InMemory = ZeroStage<N, Parameters<bfloat16>>;
/// Runs a step whose first gradient is `first`.
template <class Engine>
void step_with(Engine& engine, float first) {
    engine.begin_step();
    engine.begin_micro_step();
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            for (auto& value : gradients[parameter]) {
                value = from_float<typename Engine::GradientType>(parameter == 0 ? first : 1.0F);
            }
        }
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
    (void)engine.step(0.01);
}

} // namespace

TEST_CASE("A trainer whose memory cannot hold its states keeps them in a file, and trains to the "
          "same bits") {
    TemporaryFolder const folder; // of a real file system
    Training training;
    training.specs.clear();
    for (std::size_t layer = 0; layer < 6; ++layer) {
        training.specs.push_back({"layer" + std::to_string(layer), 5000, {layer}});
    }
    in_every_stage([&]<int N>() {
        auto const expected = history<InMemory<N>>(1, {}, training);
        std::size_t const states = std::size_t{6} * 5000 * 12;
        LimitedMemory memory(states);
        CHECK(outcome_of([&] { (void)history<InMemory<N>>(1, {.memory = &memory}, training); }).type
              == "other"); // std::bad_alloc
        auto options = in_folder(folder);
        options.chunk_bytes = 16'000;
        CHECK(
            (history<InFile<N>>(1, {.offload = options, .memory = &memory}, training) == expected));
        CHECK(memory.most() < states);
        CHECK(std::filesystem::is_empty(folder.path()));
    });
}

TEST_CASE("An operator that is larger than the memory of a rank runs in tiles, all of whose states "
          "lie in files") {
    std::size_t const operator_bytes = std::size_t{400} * 100 * sizeof(bfloat16);
    TemporaryFolder const folder;
    auto const run = [&]<class Stage>(std::size_t count, std::size_t limit,
                                      typename Stage::Options const& options) {
        return on_ranks<std::vector<std::vector<float>>>(4, [&](auto& communicator) {
            LimitedMemory memory(limit);
            auto own = options;
            own.memory = &memory;
            Stage engine(communicator, tiled_model<bfloat16>(count, {400, 100}), own);
            for (std::uint64_t step = 0; step < 3; ++step) {
                run_tiled_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
            }
            return full_parameters(engine);
        })[0];
    };
    InFile<3>::Options options{.offload = in_folder(folder)};
    options.offload.chunk_bytes = 4096;
    auto const expected = run.template operator()<InMemory<3>>(16, 1U << 24U, {});
    CHECK(run.template operator()<InFile<3>>(16, operator_bytes, options) == expected);
    for (std::size_t const count : {std::size_t{16}, no_tiles}) {
        CHECK(outcome_of([&] {
                  (void)run.template operator()<InMemory<3>>(count, operator_bytes, {});
              }).type
              == "other"); // std::bad_alloc
    }
    CHECK(outcome_of([&] {
              (void)run.template operator()<InFile<3>>(no_tiles, operator_bytes, options);
          }).type
          == "other");
}

TEST_CASE("The memory plan of states in a file equals the allocations and the size of the file") {
    for (double const ratio : {0.0, 0.5, 1.0}) {
        in_every_stage([&]<int N>() {
            TemporaryFolder const folder;
            DelayedFiles files(1, 0);
            HostMemoryResource memory;
            std::string described;
            auto const plans = on_ranks<MemoryPlan>(1, [&](LoopbackCommunicator& communicator) {
                auto offload = in_folder(folder, &files);
                offload.ratio = ratio;
                InFile<N> engine(communicator, registration<bfloat16>(toy_specs()),
                                 {.offload = offload, .memory = &memory});
                for (std::uint64_t step = 0; step < 3; ++step) {
                    (void)run_step(engine, 0, step).report();
                }
                auto plan = engine.memory_plan();
                for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                    auto const own = static_cast<BufferKind>(kind);
                    bool const is_engines = own != BufferKind::communicator;
                    if (is_engines && memory.allocated_bytes(own) != plan[own].bytes()) {
                        plan.tier_bytes = kind; // fails below
                    }
                }
                described = engine.describe_memory();
                return plan;
            });
            INFO(described);
            CHECK(plans[0].tier_bytes == files.bytes(0).size());
            CHECK((plans[0][BufferKind::staging].bytes() == 0) == (ratio == 0.0));
            CHECK((plans[0][BufferKind::optimizer_state].bytes() == 0) == (ratio == 1.0));
            CHECK((described.find("in a file: ") != std::string::npos) == (ratio != 0.0));
            CHECK(memory.allocated_bytes() == 0);
        });
    }
}

TEST_CASE("A skipped step writes nothing, and its decision does not reach the writes of the step "
          "before") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        DelayedFiles files(1, 0);
        std::atomic<bool> is_open{true};
        files.on_write = [&](std::size_t) {
            is_open.wait(false);
            return std::int64_t{0};
        };
        std::size_t before = 0;
        auto const run = [&]<class Stage>(typename Stage::Options const& options) {
            auto const ranks = on_ranks<Trained>(1, [&](LoopbackCommunicator& communicator) {
                Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
                before = files.writes;
                is_open = false; // the writes of the first step wait until the next is enqueued
                step_with(engine, 1.0F);
                step_with(engine, std::numeric_limits<float>::infinity());
                is_open = true;
                is_open.notify_all();
                step_with(engine, std::numeric_limits<float>::infinity());
                step_with(engine, 1.0F);
                Trained state;
                state.resize(toy_specs());
                state.parameters = full_parameters(engine);
                return state;
            });
            return ranks[0];
        };
        auto const expected = run.template operator()<InMemory<N>>({});
        auto offload = in_folder(folder, &files);
        offload.depth = 64;
        CHECK((run.template operator()<InFile<N>>({.offload = offload}) == expected));
        std::size_t const of_two_steps = files.writes - before;
        (void)on_ranks<int>(1, [&](LoopbackCommunicator& communicator) {
            InFile<N> engine(communicator, registration<bfloat16>(toy_specs()),
                             {.offload = offload});
            before = files.writes;
            step_with(engine, 1.0F);
            return 0;
        });
        CHECK(of_two_steps > 8);
        CHECK(of_two_steps == 2 * (files.writes - before));
    });
}

TEST_CASE("What is written between two steps is what the next step starts from") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        DelayedFiles files(N);
        auto const run = [&]<class Stage>(typename Stage::Options const& options) {
            return Trained::joined(on_ranks<Trained>(2, [&](LoopbackCommunicator& communicator) {
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
                (void)run_step(engine, rank, 0);
                engine.for_each_owned_slice([](auto const& slice) {
                    for (std::size_t i = 0; i < slice.values.size(); ++i) {
                        if ((slice.begin + i) % 3 == 0) {
                            slice.values[i] = from_float<bfloat16>(0.25F);
                        } else if ((slice.begin + i) % 3 == 1) {
                            slice.master[i] = 0.30000001F;
                        }
                        slice.states[0][i] += 0.5F;
                    }
                });
                engine.parameters_changed();
                (void)run_step(engine, rank, 1);
                engine.begin_step(); // an update of the caller's
                for (auto const micro_step : engine.micro_steps(1)) {
                    run_micro_step(engine, rank, 2, micro_step);
                }
                (void)engine.step(0.01, [](auto const& slice) {
                    for (std::size_t i = 0; i < slice.gradient.size(); ++i) {
                        slice.weights()[i] = slice.weights()[i] - 0.125F * slice.gradient[i];
                        slice.states[1][i] += 0.25F;
                    }
                });
                (void)run_step(engine, rank, 3);
                Trained state;
                state.resize(toy_specs());
                state.parameters = full_parameters(engine);
                engine.for_each_owned_slice([&](auto const& slice) { state.add(slice); });
                return state;
            }));
        };
        auto const expected = run.template operator()<InMemory<N>>({});
        CHECK((run.template operator()<InFile<N>>({.offload = in_folder(folder, &files)})
               == expected));
    });
}

TEST_CASE("The first reads of an update begin with the step, and those of a cancelled step are "
          "forgotten") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        DelayedFiles files(N);
        std::size_t of_cancelled = 0;
        auto const run = [&]<class Stage>(typename Stage::Options const& options) {
            auto const ranks = on_ranks<Trained>(1, [&](LoopbackCommunicator& communicator) {
                Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
                auto const double_states = [&] {
                    engine.for_each_owned_slice([](auto const& slice) {
                        std::ranges::for_each(slice.states[1], [](float& value) { value *= 2; });
                    });
                };
                (void)run_step(engine, 0, 0);
                double_states();
                std::size_t const before = files.reads;
                engine.begin_step();
                engine.cancel_step(); // waits for its reads
                of_cancelled = files.reads - before;
                double_states();
                (void)run_step(engine, 0, 1);
                engine.begin_step();
                engine.cancel_step();
                (void)run_step(engine, 0, 2);
                Trained state;
                state.resize(toy_specs());
                engine.for_each_owned_slice([&](auto const& slice) { state.add(slice); });
                state.parameters = full_parameters(engine);
                return state;
            });
            return ranks[0];
        };
        auto const expected = run.template operator()<InMemory<N>>({});
        CHECK(of_cancelled == 0);
        auto offload = in_folder(folder, &files);
        offload.depth = 2;
        CHECK((run.template operator()<InFile<N>>({.offload = offload}) == expected));
        CHECK(of_cancelled == 2);
    });
}

TEST_CASE("A request that fails breaks the engine with an error that names it, and its peers get "
          "Aborted") {
    struct Fault {
        bool is_write;
        int code;
        char const* reason;
    };
    for (Fault const fault :
         {Fault{false, EIO, "Input/output error"}, Fault{true, ENOSPC, "No space left"}}) {
        in_every_stage([&]<int N>() {
            INFO(fault.reason);
            TemporaryFolder const folder;
            DelayedFiles healthy(1), failing(2);
            auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
                bool const fails = communicator.rank() == 1;
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                InFile<N> engine(communicator, registration<bfloat16>(toy_specs()),
                                 {.offload = in_folder(folder, fails ? &failing : &healthy)});
                if (fails) {
                    (fault.is_write ? failing.on_write : failing.on_read) = [&](std::size_t call) {
                        return call > 8 ? std::int64_t{-fault.code} : std::int64_t{0};
                    };
                }
                for (std::uint64_t step = 0; step < 50; ++step) {
                    (void)run_step(engine, rank, step);
                }
                (void)full_parameters(engine);
            });
            CHECK(outcomes.ranks[0].type == "Aborted");
            CHECK_THAT(outcomes.ranks[0].message, contains_text("rank 1"));
            bool const has_parameters =
                outcomes.ranks[1].message.find("parameters of '") != std::string::npos;
            for (char const* text :
                 {"rank 1: ",
                  N == 3 && has_parameters ? "parameters of '"
                                           : "optimizer state and master weights of '",
                  ", elements ", ", at byte ", fault.reason}) {
                CHECK_THAT(outcomes.ranks[1].message, contains_text(text));
            }
            CHECK(healthy.created == healthy.closed);
            CHECK(failing.created == failing.closed);
        });
    }
}

TEST_CASE("A disk without room for the states of one rank releases the other ranks") {
    struct FullDisk : FileCalls {
        int create(char const*, bool) override { return 7; }
        std::int64_t alignment(int, bool) override { return 512; }
        int allocate(int, std::uint64_t) override { return -ENOSPC; }
        std::int64_t read(int, void*, std::size_t, std::uint64_t) override { return -EIO; }
        std::int64_t write(int, void const*, std::size_t, std::uint64_t) override { return -EIO; }
        void close(int) noexcept override { ++closed; }
        std::atomic<int> closed{0};
    };
    TemporaryFolder const folder;
    FullDisk full;
    Outcome caught;
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        bool const fails = communicator.rank() == 1;
        auto const make = [&] {
            InFile<2> const engine(communicator, registration<bfloat16>(toy_specs()),
                                   {.offload = in_folder(folder, fails ? &full : nullptr)});
        };
        if (fails) {
            caught = outcome_of(make); // not thrown on: the engine itself releases rank 0
        } else {
            make();
        }
    });
    CHECK_THAT(caught.message, contains_text("has no room for a file of"));
    CHECK(outcomes.ranks[0].type == "Aborted");
    CHECK(full.closed == 1);
}

TEST_CASE("A flipped bit in the file is found before it is used") {
    TemporaryFolder const folder;
    for (std::size_t const at : {0U, 3U, 100U}) { // in the first chunk
        DelayedFiles files(at);
        auto parameters = registration<bfloat16>(toy_specs());
        CallerMemory<bfloat16, bfloat16> memory(parameters);
        std::vector<bfloat16> before;
        auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
            InFile<2> engine(communicator, parameters,
                             {.storage = Storage::scattered, .offload = in_folder(folder, &files)});
            (void)run_step(engine, 0, 0).report();
            engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
            before = memory.block;
            files.bytes(0)[at] ^= std::byte{16};
            (void)run_step(engine, 0, 1).report();
        });
        CHECK(std::memcmp(before.data(), memory.block.data(), before.size() * sizeof(bfloat16))
              == 0);
        CHECK_THAT(outcomes.ranks[0].message, contains_text("is not what was written"));
    }
}

TEST_CASE("A gather reads the own extent once, and an update that rounds master weights reads no "
          "parameters") {
    struct Case {
        std::uint64_t resident_bytes;
        std::size_t resident; // whole chunks
        bool leaves;          // a parameter without a gradient keeps its weights
    };
    for (Case const& own : {Case{0, 0, false}, Case{0, 0, true}, Case{1, 640, false},
                            Case{2561, 3200, true}, Case{1U << 20U, 3840, false}}) {
        TemporaryFolder const folder;
        DelayedFiles files(1, 0);
        files.block = 64;
        std::vector<ParameterSpec> const specs{{"first", 1280, {0}}, {"second", 640, {1}}};
        auto const counts =
            on_ranks<std::vector<std::uint64_t>>(1, [&](LoopbackCommunicator& communicator) {
                auto offload = in_folder(folder, &files);
                offload.chunk_bytes = 5000; // 320 elements and the gaps
                offload.resident_bytes = own.resident_bytes;
                InFile<3> engine(communicator, registration<bfloat16>(specs),
                                 {.unused_parameters =
                                      own.leaves ? UnusedParameters::leave : UnusedParameters::zero,
                                  .offload = offload});
                std::vector<std::uint64_t> bytes{files.bytes_read};
                CHECK(files.writes
                      == 6 + (3840 - own.resident) / 640); // each part of 6 chunks once
                for (std::size_t const unit : {0U, 1U}) {
                    {
                        auto const weights = engine.acquire(unit);
                    }
                    (void)engine.step_count(); // waits
                    bytes.push_back(files.bytes_read);
                }
                CHECK(engine.memory_plan()[BufferKind::parameters].bytes() == own.resident);
                step_with(engine, 1.0F);
                (void)engine.last_report();
                bytes.push_back(files.bytes_read);
                return bytes;
            })[0];
        std::size_t const of_first = 1280 * 2;
        std::size_t const kept_of_first = own.resident < of_first ? own.resident : of_first;
        CHECK(counts[0] == 3840 - own.resident); // master weights are made from them
        CHECK(counts[1] - counts[0] == of_first - kept_of_first);
        CHECK(counts[2] - counts[1] == 640 * 2 - (own.resident - kept_of_first));
        CHECK(counts[3] - counts[2] == 1920 * 12 + (own.leaves ? 1920 * 2 - own.resident : 0));
    }
}

TEST_CASE("Each of W ranks reads 1/W of the parameters of a gather") {
    std::vector<ParameterSpec> const specs{{"first", 1280, {0}}, {"second", 640, {1}}};
    for (int const world : {2, 3, 5}) {
        TemporaryFolder const folder;
        auto const bytes = on_ranks<std::uint64_t>(world, [&](LoopbackCommunicator& communicator) {
            DelayedFiles files(1, 0);
            files.block = 64;
            InFile<3> engine(communicator, registration<bfloat16>(specs),
                             {.offload = in_folder(folder, &files)});
            std::uint64_t const before = files.bytes_read;
            { auto const weights = engine.acquire(0); }
            (void)engine.step_count(); // waits
            return files.bytes_read - before;
        });
        std::uint64_t const blocks = 1280 / 64;
        auto const ranks = static_cast<std::uint64_t>(world);
        CHECK(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}) == 1280 * 2);
        CHECK(*std::max_element(bytes.begin(), bytes.end()) == (blocks + ranks - 1) / ranks * 128);
    }
}

TEST_CASE("Frozen parameters in a file need no more staging memory than trained ones") {
    std::size_t staging[2] = {0, 0};
    for (bool const is_frozen : {false, true}) {
        TemporaryFolder const folder;
        DelayedFiles files(1, 0);
        std::vector<ParameterSpec> specs{{"first", 100, {0}}, {"second", 20'000, {1}}};
        specs[1].trainable = !is_frozen;
        (void)on_ranks<int>(1, [&](LoopbackCommunicator& communicator) {
            auto offload = in_folder(folder, &files);
            offload.chunk_bytes = 10'000;
            InFile<3> const engine(communicator, registration<bfloat16>(specs),
                                   {.offload = offload});
            staging[is_frozen ? 1 : 0] = engine.memory_plan()[BufferKind::staging].bytes();
            return 0;
        });
    }
    CHECK(staging[0] > 10'000);
    CHECK(staging[1] <= staging[0]);
    CHECK(staging[0] < 2 * 10'000 * 8 / 7 + 5 * 512); // and what aligning takes
}

TEST_CASE("A flipped bit of parameters in a file is found by the gather that reads it") {
    for (bool const is_frozen : {false, true}) {
        TemporaryFolder const folder;
        DelayedFiles files(3, 0);
        std::vector<ParameterSpec> specs{{"first", 100, {0}}, {"second", 70, {1}}};
        specs[1].trainable = !is_frozen;
        auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
            InFile<3> engine(communicator, registration<bfloat16>(specs),
                             {.offload = in_folder(folder, &files)});
            (void)run_step(engine, 0, 0).report();
            engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
            files.bytes(0)[files.bytes(0).size() - 512] ^= std::byte{1}; // in the last chunk
            { auto const weights = engine.acquire(0); }
            (void)full_parameters(engine);
        });
        CHECK_THAT(outcomes.ranks[0].message,
                   contains_text("rank 0: parameters of 'second', elements "));
        CHECK_THAT(outcomes.ranks[0].message, contains_text("is not what was written"));
    }
}

TEST_CASE("Chunks are read, updated and written at once: a read may wait until an earlier chunk is "
          "written") {
    in_every_stage([&]<int N>() {
        TemporaryFolder const folder;
        DelayedFiles files(1, 0);
        std::atomic<bool> is_written{true};
        std::set<std::uint64_t> places; // of chunks, in the order of their updates
        std::mutex mutex;
        files.before_read_at = [&](std::uint64_t place) {
            bool is_third = false;
            {
                std::lock_guard const lock(mutex);
                places.insert(place);
                is_third = places.size() > 2 && place == *std::next(places.begin(), 2);
            }
            if (is_third) {
                is_written.wait(false);
            }
        };
        files.on_write = [&](std::size_t) {
            is_written = true;
            is_written.notify_all();
            return std::int64_t{0};
        };
        auto offload = in_folder(folder, &files);
        offload.depth = 3;
        auto const steps = on_ranks<std::uint64_t>(1, [&](LoopbackCommunicator& communicator) {
            using States = To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>;
            ZeroStage<N, Parameters<bfloat16>, Offload<States>> engine(
                communicator, registration<bfloat16>(toy_specs()), {.offload = offload});
            (void)run_step(engine, 0, 0).report();
            engine.for_each_owned_slice([](auto const&) {}); // waits until all is written
            CHECK(std::filesystem::is_empty(folder.path()));
            is_written = false;
            (void)run_step(engine, 0, 1).report();
            return engine.step_count();
        });
        CHECK(steps[0] == 2);
        CHECK(places.size() > 3);
    });
}

} // namespace zero::test::offload_test
