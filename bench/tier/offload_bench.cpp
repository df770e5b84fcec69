// Compares steps whose states lie in a file with twins, on the shapes of GPT-2 124M with bfloat16
// parameters, AdamW and one rank: 12 bytes are read and 12 written for each element.
//
//   offload_step/states         stage 2, masters and moments in the file
//   offload_step/parameters     stage 3, parameters in the file as well: each is gathered twice
//   offload_checksums/states    the requests of that step by a FileTier alone, which differs from
//                               the twin by its checksums
//   offload_depth/4             4 chunks in staging memory; the twin is the engine with 1
//   offload_ratio/half          the time that a step takes longer than one in memory, with half of
//                               the chunks in the file; the twin is the engine with all of them
//
// Other twins repeat the requests of a step of the engine: the same bytes on as many queues of the
// same kind, from and to the same memory. A request waits only for those before it that use its
// memory, and nothing is computed. For states the file is the engine's own, since two files of one
// disk can differ by a fifth; parameters would be spoilt by it, so their twin has another.
//
// Each time ends when all requests are done. Files are in $ZERO_BENCH_FOLDER, or in the system's
// folder for temporary files, which must be on a disk; all benchmarks together take 12 GB there.

#include "stage/backward_pass.hpp"
#include "stage/one_of_many.hpp"

#include "support/shapes.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/stage/offload.hpp>

#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace {

using namespace zero;

std::filesystem::path folder() {
    char const* const given = std::getenv("ZERO_BENCH_FOLDER");
    return given != nullptr ? std::filesystem::path(given) : std::filesystem::temp_directory_path();
}

void require(bool holds) {
    if (!holds) {
        std::perror("offload_bench");
        std::exit(1);
    }
}

struct Request {
    bool is_write;
    std::size_t chunk;
    std::byte* memory;
};

/// The calls of the system, and the descriptor of the newest file.
class NotedCalls final : public FileCalls {
public:
    int create(char const* path, bool is_direct) override {
        return newest_file = _calls.create(path, is_direct);
    }
    std::int64_t alignment(int file, bool is_direct) override {
        return _calls.alignment(file, is_direct);
    }
    int allocate(int file, std::uint64_t bytes) override { return _calls.allocate(file, bytes); }
    std::int64_t read(int file, void* to, std::size_t bytes, std::uint64_t offset) override {
        return _calls.read(file, to, bytes, offset);
    }
    std::int64_t write(int file, void const* from, std::size_t bytes,
                       std::uint64_t offset) override {
        return _calls.write(file, from, bytes, offset);
    }
    void close(int file) noexcept override { _calls.close(file); }

    int newest_file = -1;

private:
    FileCalls& _calls = FileCalls::system();
};

NotedCalls calls;

/// Waits for all requests of a tier.
template <class Tier>
void drain(Tier& tier) {
    for (std::size_t queue = 0; queue < FileTier::queues; ++queue) {
        tier.reading_queue(queue)->synchronise();
        tier.writing_queue(queue)->synchronise();
    }
}

/// A tier that notes its requests.
class NotedTier : public FileTier {
public:
    NotedTier(FileTierOptions const& options, std::span<std::uint64_t const> sizes,
              std::string owner, MemoryResource& memory)
        : FileTier(options, sizes, std::move(owner), memory), file(calls.newest_file),
          chunks(sizes.size()) {
        newest = this;
    }

    host::Event read(std::size_t chunk, void* to) {
        note({false, chunk, static_cast<std::byte*>(to)});
        return FileTier::read(chunk, to);
    }
    host::Event write(std::size_t chunk, void* from, bool const* is_left_out = nullptr) {
        note({true, chunk, static_cast<std::byte*>(from)});
        return FileTier::write(chunk, from, is_left_out);
    }

    inline static NotedTier* newest = nullptr;
    int file;
    std::size_t chunks;
    std::vector<Request> requests; ///< in order, while `is_noting`
    bool is_noting = false;

private:
    void note(Request const& request) {
        if (is_noting) {
            requests.push_back(request);
        }
    }
};

using States = Offload<To<NotedTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
using All = Offload<
    To<NotedTier, BufferKind::optimizer_state, BufferKind::master_weights, BufferKind::parameters>>;

/// Something that takes steps.
class Stepper {
public:
    Stepper() = default;
    Stepper(Stepper const&) = delete;
    Stepper& operator=(Stepper const&) = delete;
    virtual ~Stepper() = default;
    virtual void step() = 0;
};

struct Case {
    std::size_t depth = FileTierOptions{}.depth;
    double ratio = 1;
    bool is_of_twin = false;
};

template <int N, class Policy>
class Trainer final : public Stepper {
public:
    using Engine = ZeroStage<N, bench::OneOfMany, Parameters<bfloat16>, Policy>;

    explicit Trainer(Case const& what) : _engine(_communicator, model(), options(what)) {
        if constexpr (Policy::is_any) {
            _tier = NotedTier::newest;
        }
        train(true); // also touches the remaining memory
    }

    void step() override { train(false); }

    /// Returns the tier with the requests of one step.
    NotedTier& noted() {
        _tier->requests.clear();
        _tier->is_noting = true;
        train(false);
        _tier->is_noting = false;
        return *_tier;
    }

private:
    static std::vector<Parameter<bfloat16>> model() {
        std::vector<Parameter<bfloat16>> parameters;
        for (auto const& spec : test::gpt2_124m()) {
            parameters.push_back(
                {.name = spec.name, .elements = spec.elements, .units = spec.units});
        }
        return parameters;
    }

    static typename Engine::Options options(Case const& what) {
        typename Engine::Options options;
        options.non_finite = NonFinite::step; // no twin reads gradients
        if constexpr (Policy::is_any) {
            options.offload.path = folder();
            options.offload.calls = &calls;
            options.offload.depth = what.depth;
            options.offload.ratio = what.ratio;
        }
        if constexpr (N == 3) {
            options.gather.prefetch_elements = 2 * test::gpt2_embedding_elements;
        }
        return options;
    }

    void train(bool are_written) {
        auto const gather = [&](std::size_t unit) {
            if constexpr (N == 3) {
                (void)_engine.acquire(unit);
            }
        };
        _engine.begin_step();
        _engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = 0; unit < _engine.layout().units(); ++unit) {
            gather(unit);
        }
        bench::backward_and_step(_engine, gather, are_written);
        if (_tier != nullptr) {
            drain(*_tier);
        }
    }

    bench::OneOfMany _communicator{1};
    Engine _engine;
    NotedTier* _tier = nullptr;
};

/// The file of a `NotedTier` behind queues of its own, without checksums.
class PlainTier {
public:
    explicit PlainTier(NotedTier& tier) : _noted(tier) {
        for (auto& queue : _queues) {
            queue = std::make_unique<host::WaitingQueue>(2 * tier.chunks + 16, _memory);
        }
    }
    PlainTier(PlainTier const&) = delete;
    PlainTier& operator=(PlainTier const&) = delete;
    ~PlainTier() { drain(*this); }

    host::Queue* reading_queue(std::size_t chunk) {
        return _queues[chunk % FileTier::queues].get();
    }
    host::Queue* writing_queue(std::size_t chunk) {
        return _queues[FileTier::queues + chunk % FileTier::queues].get();
    }

    host::Event read(std::size_t chunk, std::byte* to) {
        return move(chunk, *reading_queue(chunk), [this, to](std::uint64_t begin, std::size_t n) {
            return calls.read(_noted.file, to, n, begin);
        });
    }
    host::Event write(std::size_t chunk, std::byte const* from) {
        return move(chunk, *writing_queue(chunk), [this, from](std::uint64_t begin, std::size_t n) {
            return calls.write(_noted.file, from, n, begin);
        });
    }

private:
    template <class Call>
    host::Event move(std::size_t chunk, host::Queue& queue, Call const& call) const {
        auto const begin = static_cast<std::uint64_t>(_noted.address(chunk) - _noted.address(0));
        queue.enqueue([call, begin, bytes = _noted.staging_bytes(chunk)] {
            require(call(begin, bytes) == static_cast<std::int64_t>(bytes));
        });
        return queue.record();
    }

    NotedTier& _noted;
    HostMemoryResource _memory;
    std::array<std::unique_ptr<host::WaitingQueue>, 2 * FileTier::queues> _queues;
};

/// Repeats the requests of a step.
template <class Tier>
class Replay final : public Stepper {
public:
    explicit Replay(NotedTier& noted) : _noted(noted), _tier(noted) {
        auto const& requests = noted.requests;
        auto const end = [&](Request const& request) {
            return request.memory + noted.staging_bytes(request.chunk);
        };
        for (std::size_t index = 0; index < requests.size(); ++index) {
            Request const& own = requests[index];
            _awaited.emplace_back();
            for (std::size_t other = index; other-- > 0;) {
                Request const& before = requests[other];
                if (before.memory < end(own) && own.memory < end(before)) {
                    _awaited.back().push_back(other);
                }
                if (before.memory <= own.memory && end(own) <= end(before)) {
                    break; // which waited for all others
                }
            }
        }
        _done.resize(requests.size());
    }

    void step() override {
        for (std::size_t index = 0; index < _done.size(); ++index) {
            Request const& own = _noted.requests[index];
            host::Queue& queue =
                *(own.is_write ? _tier.writing_queue(own.chunk) : _tier.reading_queue(own.chunk));
            for (std::size_t const other : _awaited[index]) {
                queue.wait(_done[other]);
            }
            _done[index] = own.is_write ? _tier.write(own.chunk, own.memory)
                                        : _tier.read(own.chunk, own.memory);
        }
        drain(_tier);
    }

private:
    NotedTier& _noted;
    std::vector<std::vector<std::size_t>> _awaited; ///< by request: those that it waits for
    std::vector<host::Event> _done;
    Tier _tier; ///< a `PlainTier`, or the tier of the engine itself
};

/// Makes a stepper on its first use and keeps it, so that repetitions in any order cost a step.
using Make = std::function<std::unique_ptr<Stepper>()>;

Stepper& stepper(std::string const& name, Make const& make) {
    static std::map<std::string, std::unique_ptr<Stepper>> all;
    auto& own = all[name];
    if (own == nullptr) {
        own = make();
    }
    return *own;
}

double seconds_of(Stepper& own) {
    auto const start = std::chrono::steady_clock::now();
    own.step();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <int N, class Policy>
Trainer<N, Policy>& trainer(Case const& what = {}) {
    std::string const name = std::to_string(N) + (Policy::is_any ? "" : " in memory") + " depth "
                             + std::to_string(what.depth) + " ratio " + std::to_string(what.ratio)
                             + (what.is_of_twin ? " twin" : "");
    return static_cast<Trainer<N, Policy>&>(
        stepper(name, [&] { return std::make_unique<Trainer<N, Policy>>(what); }));
}

template <class Tier, int N, class Policy>
Stepper& replay(Case const& what = {}) {
    return stepper("replay " + std::to_string(N) + typeid(Tier).name(), [&] {
        return std::make_unique<Replay<Tier>>(trainer<N, Policy>(what).noted());
    });
}

/// @param make returns what takes the steps
void add(char const* name, Stepper& (*make)()) {
    benchmark::RegisterBenchmark(name,
                                 [make](benchmark::State& state) {
                                     Stepper& own = make();
                                     for ([[maybe_unused]] auto _ : state) {
                                         state.SetIterationTime(seconds_of(own));
                                     }
                                 })
        ->Arg(static_cast<std::int64_t>(test::gpt2_elements))
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
}

/// The time beside that of a step in memory, which is taken right before.
void add_extra(char const* name, double ratio) {
    benchmark::RegisterBenchmark(name,
                                 [ratio](benchmark::State& state) {
                                     Stepper& own = trainer<2, States>({.ratio = ratio});
                                     Stepper& memory = trainer<2, NoOffload>();
                                     for ([[maybe_unused]] auto _ : state) {
                                         double const least = seconds_of(memory);
                                         state.SetIterationTime(seconds_of(own) - least);
                                     }
                                 })
        ->Arg(static_cast<std::int64_t>(test::gpt2_elements))
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
}

[[maybe_unused]] bool const is_registered = [] {
    add("offload_step/states/twin", []() -> Stepper& { return replay<PlainTier, 2, States>(); });
    add("offload_step/states/zero", []() -> Stepper& { return trainer<2, States>(); });
    add("offload_step/parameters/twin",
        []() -> Stepper& { return replay<PlainTier, 3, All>({.is_of_twin = true}); });
    add("offload_step/parameters/zero", []() -> Stepper& { return trainer<3, All>(); });
    add("offload_checksums/states/twin",
        []() -> Stepper& { return replay<PlainTier, 2, States>(); });
    add("offload_checksums/states/zero",
        []() -> Stepper& { return replay<NotedTier&, 2, States>(); });
    add("offload_depth/4/twin", []() -> Stepper& { return trainer<2, States>({.depth = 1}); });
    add("offload_depth/4/zero", []() -> Stepper& { return trainer<2, States>({.depth = 4}); });
    add_extra("offload_ratio/half/twin", 1);
    add_extra("offload_ratio/half/zero", 0.5);
    return true;
}();

} // namespace
