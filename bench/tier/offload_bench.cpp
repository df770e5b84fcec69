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
// same kind, from and to memory of the same slots. A request waits only for those before it that
// use its memory, and nothing is computed.
//
// Each time ends when all requests are done. Files are in $ZERO_BENCH_FOLDER, or in the system's
// folder for temporary files, which must be on a disk; all benchmarks together take 14 GB there.

#include "stage/backward_pass.hpp"
#include "stage/one_of_many.hpp"

#include "support/shapes.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/stage/offload.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
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
#include <new>
#include <span>
#include <string>
#include <type_traits>
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

/// The chunks of an engine, and the requests of one of its steps in order.
struct Trace {
    std::vector<std::uint64_t> chunks;
    std::vector<Request> requests;
};

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
    NotedTier(FileTierOptions const& options, std::span<std::uint64_t const> chunks,
              std::string owner, MemoryResource& memory)
        : FileTier(options, chunks, std::move(owner), memory) {
        newest = this;
        trace.chunks.assign(chunks.begin(), chunks.end());
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
    Trace trace;
    bool is_noting = false;

private:
    void note(Request const& request) {
        if (is_noting) {
            trace.requests.push_back(request);
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

    Trace trace() {
        _tier->is_noting = true;
        train(false);
        return _tier->trace;
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

/// The file and the queues of a `FileTier`, without checksums.
class PlainTier {
public:
    PlainTier(FileTierOptions const& options, std::span<std::uint64_t const> chunks, std::string,
              MemoryResource& memory)
        : _file(_calls.create(options.path.c_str(), true)) {
        require(_file >= 0);
        auto const alignment = static_cast<std::uint64_t>(_calls.alignment(_file, true));
        _begin.push_back(0);
        for (std::uint64_t const bytes : chunks) {
            _begin.push_back(_begin.back() + (bytes + alignment - 1) / alignment * alignment);
        }
        require(_calls.allocate(_file, _begin.back()) == 0);
        for (auto& queue : _queues) {
            queue = std::make_unique<host::WaitingQueue>(2 * chunks.size() + 16, memory);
        }
    }
    PlainTier(PlainTier const&) = delete;
    PlainTier& operator=(PlainTier const&) = delete;
    ~PlainTier() {
        drain(*this);
        _calls.close(_file);
    }

    [[nodiscard]] std::size_t staging_bytes(std::size_t chunk) const {
        return static_cast<std::size_t>(_begin[chunk + 1] - _begin[chunk]);
    }
    host::Queue* reading_queue(std::size_t chunk) { return _queues[chunk % 2].get(); }
    host::Queue* writing_queue(std::size_t chunk) { return _queues[2 + chunk % 2].get(); }

    host::Event read(std::size_t chunk, std::byte* to) {
        return move(chunk, *reading_queue(chunk), [this, to](std::uint64_t begin, std::size_t n) {
            return _calls.read(_file, to, n, begin);
        });
    }
    host::Event write(std::size_t chunk, std::byte const* from) {
        return move(chunk, *writing_queue(chunk), [this, from](std::uint64_t begin, std::size_t n) {
            return _calls.write(_file, from, n, begin);
        });
    }

private:
    template <class Call>
    host::Event move(std::size_t chunk, host::Queue& queue, Call const& call) const {
        queue.enqueue([call, begin = _begin[chunk], bytes = staging_bytes(chunk)] {
            require(call(begin, bytes) == static_cast<std::int64_t>(bytes));
        });
        return queue.record();
    }

    FileCalls& _calls = FileCalls::system();
    int _file;
    std::vector<std::uint64_t> _begin;
    std::array<std::unique_ptr<host::WaitingQueue>, 4> _queues;
};

/// Repeats the requests of a step.
template <class Tier>
class Replay final : public Stepper {
public:
    explicit Replay(Trace trace)
        : _trace(std::move(trace)), _tier({.path = folder()}, _trace.chunks, "replay", _resource) {
        auto const& requests = _trace.requests;
        auto const end = [&](Request const& request) {
            return request.memory + _tier.staging_bytes(request.chunk);
        };
        std::byte* first = requests[0].memory;
        std::byte* last = first;
        for (std::size_t index = 0; index < requests.size(); ++index) {
            Request const& own = requests[index];
            first = std::min(first, own.memory);
            last = std::max(last, end(own));
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
        auto const bytes = static_cast<std::size_t>(last - first);
        _memory.reset(static_cast<std::byte*>(::operator new(bytes, page)));
        FileTier::use_large_pages(_memory.get(), bytes); // as the staging memory of an engine
        std::fill_n(_memory.get(), bytes, std::byte{1});
        for (Request& request : _trace.requests) {
            request.memory = _memory.get() + (request.memory - first);
        }
        _done.resize(requests.size());
        step(); // nothing could be read before it was written
    }

    void step() override {
        for (std::size_t index = 0; index < _trace.requests.size(); ++index) {
            Request const& own = _trace.requests[index];
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
    static constexpr std::align_val_t page{4096};
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete(memory, page); }
    };

    Trace _trace;
    HostMemoryResource _resource;
    std::unique_ptr<std::byte, Free> _memory;
    std::vector<std::vector<std::size_t>> _awaited; ///< by request: those that it waits for
    std::vector<host::Event> _done;
    Tier _tier; ///< destroyed first: its requests use the memory
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
Stepper& trainer(Case const& what = {}) {
    bool const is_in_memory = !Policy::is_any;
    return stepper("zero " + std::to_string(N) + (is_in_memory ? " in memory" : "") + " depth "
                       + std::to_string(what.depth) + " ratio " + std::to_string(what.ratio),
                   [&] { return std::make_unique<Trainer<N, Policy>>(what); });
}

template <class Tier, int N, class Policy>
Stepper& replay() {
    bool const is_plain = std::is_same_v<Tier, PlainTier>;
    return stepper("replay " + std::to_string(N) + (is_plain ? " plain" : ""),
                   [] { return std::make_unique<Replay<Tier>>(Trainer<N, Policy>({}).trace()); });
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
    add("offload_step/parameters/twin", []() -> Stepper& { return replay<PlainTier, 3, All>(); });
    add("offload_step/parameters/zero", []() -> Stepper& { return trainer<3, All>(); });
    add("offload_checksums/states/twin",
        []() -> Stepper& { return replay<PlainTier, 2, States>(); });
    add("offload_checksums/states/zero",
        []() -> Stepper& { return replay<FileTier, 2, States>(); });
    add("offload_depth/4/twin", []() -> Stepper& { return trainer<2, States>({.depth = 1}); });
    add("offload_depth/4/zero", []() -> Stepper& { return trainer<2, States>({.depth = 4}); });
    add_extra("offload_ratio/half/twin", 1);
    add_extra("offload_ratio/half/zero", 0.5);
    return true;
}();

} // namespace
