// The contender `zero` of compare.py: whole steps of two ranks, threads of this process, on the
// tensors of GPT-2 124M (--scale: the same tensors with fewer elements). It reads commands from
// stdin and answers each with one line of JSON; README.md lists them. A step is reduction, AdamW
// and gather, and writes the gradients beforehand only under --write-gradients.
//
//   g++ -std=c++20 -O2 -Iinclude -Itests bench/peers/zero_step.cpp -pthread -o zero_step

#include "support/shapes.hpp"

#include <zero/zero.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace zero;

constexpr int world = 2;
constexpr double learning_rate = 1e-4;
constexpr std::array<float, world> gradient_of_rank{0.75F, -0.25F}; ///< their mean is positive
constexpr double tolerance = 0.005;                                 ///< bfloat16 rounds by 0.002

struct Settings {
    int stage = 2;
    std::string dtype = "float32";
    double scale = 1.0;
    bool is_clipped = false;
    bool writes_gradients = false; ///< otherwise leases are filled once, and keep their values
};

enum class Command : std::int64_t { quit, step, check };

/// The sign of the gradients of a parameter. Alternates where gradients are written per parameter,
/// so that a result at the wrong place is found.
float sign_of(Settings const& settings, std::size_t parameter) {
    return settings.writes_gradients && parameter % 2 == 1 ? -1.0F : 1.0F;
}

std::vector<ParameterSpec> model_of(double scale) {
    auto model = test::gpt2_124m();
    for (auto& spec : model) {
        auto const elements = static_cast<std::size_t>(scale * static_cast<double>(spec.elements));
        spec.elements = std::max<std::size_t>(64, elements / 64 * 64);
    }
    return model;
}

/// Returns the bytes of this process in memory, without files. A page that n processes share counts
/// as 1/n.
std::size_t resident_bytes() {
    std::ifstream file("/proc/self/smaps_rollup");
    std::size_t sum = 0;
    for (std::string word; file >> word;) {
        if (word == "Pss_Anon:" || word == "Pss_Shmem:") {
            std::size_t kilobytes = 0;
            file >> kilobytes;
            sum += kilobytes * 1024;
        }
    }
    return sum;
}

/// Fills memory by copies of a pattern that fits in the first-level cache, so that the speed does
/// not depend on the compiler's vectoriser.
template <class T>
void fill(std::span<T> out, T value) {
    std::array<T, 2048> pattern;
    pattern.fill(value);
    for (std::size_t begin = 0; begin < out.size(); begin += pattern.size()) {
        std::memcpy(out.data() + begin, pattern.data(),
                    std::min(pattern.size(), out.size() - begin) * sizeof(T));
    }
}

/// Remembers the leases of gradients, so that values can be written once the engine has cleared
/// them.
class RememberedLeases final : public MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        void* const memory = _heap.allocate(bytes, kind);
        if (kind == BufferKind::gradient_leases) {
            _leases = {static_cast<std::byte*>(memory), bytes};
        }
        return memory;
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _heap.deallocate(memory, bytes, kind);
    }

    template <class T>
    void fill_leases(T value) const {
        fill(std::span(reinterpret_cast<T*>(_leases.data()), _leases.size() / sizeof(T)), value);
    }

private:
    HostMemoryResource _heap;
    std::span<std::byte> _leases;
};

/// One rank: its engine, and the answers to commands.
template <int N, class T>
class Rank {
public:
    using Engine = ZeroStage<N, Parameters<T>, AdamW>;

    Rank(LoopbackCommunicator& communicator, Settings const& settings)
        : _settings(settings), _communicator(communicator),
          _gradient(gradient_of_rank.at(static_cast<std::size_t>(communicator.rank()))),
          _engine(communicator, registrations(), options()) {
        _memory.fill_leases(from_float<T>(_gradient));
    }

    /// Returns the command of rank 0 on all ranks. The other ranks pass the empty command.
    Command agree(Command command) {
        return static_cast<Command>(sum(static_cast<std::int64_t>(command)));
    }

    /// Returns the seconds of the slowest rank.
    double step() {
        (void)agree({}); // the ranks start together
        auto const start = std::chrono::steady_clock::now();
        run_step();
        auto const time = std::chrono::steady_clock::now() - start;
        ++_steps;
        std::int64_t const negated =
            -std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
        return -1e-9 * static_cast<double>(combine(negated, IntegerReduction::min));
    }

    /// Returns whether every parameter of every rank moved by the learning rate in every step, as
    /// AdamW moves it while gradients stay the same. A wrong learning rate must fail for every
    /// value.
    bool is_right() {
        std::int64_t failures = 0;
        _engine.for_each_full_parameter([&](std::size_t parameter, std::span<T const> values) {
            double const moved = -learning_rate * static_cast<double>(_steps)
                                 * static_cast<double>(sign_of(_settings, parameter));
            for (T const value : values) {
                double const ratio = static_cast<double>(to_float(value)) / moved;
                bool const is_near = std::fabs(ratio - 1.0) < tolerance;
                bool const is_near_wrong = std::fabs(ratio / 1.5 - 1.0) < tolerance;
                failures += !is_near || is_near_wrong ? 1 : 0;
            }
        });
        return sum(failures) == 0;
    }

    /// Returns the planned bytes of all ranks together.
    std::int64_t planned_bytes() {
        return sum(static_cast<std::int64_t>(_engine.memory_plan().engine_bytes()));
    }

private:
    [[nodiscard]] std::vector<typename Engine::Registration> registrations() const {
        std::vector<typename Engine::Registration> result;
        for (auto const& spec : model_of(_settings.scale)) {
            result.push_back({.name = spec.name, .elements = spec.elements, .units = spec.units});
        }
        return result;
    }

    [[nodiscard]] typename Engine::Options options() {
        typename Engine::Options options;
        options.non_finite = NonFinite::step; // PyTorch checks nothing either
        if (_settings.is_clipped) {
            options.gradient_clipping = 1.0F;
        }
        options.memory = &_memory;
        return options;
    }

    void run_step() {
        auto const& layout = _engine.layout();
        _engine.begin_step();
        _engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = 0; unit < layout.units(); ++unit) {
            (void)_engine.acquire(unit);
        }
        for (std::size_t unit = layout.units(); unit-- > 0;) {
            (void)_engine.acquire(unit);
            auto const gradients = _engine.gradients(unit, {}, false);
            for (std::size_t const parameter : layout.unit_parameters(unit)) {
                auto const gradient = gradients[parameter];
                bool const is_first = layout.parameter(parameter).units.back() == unit;
                if (_settings.writes_gradients && is_first) {
                    fill(gradient, from_float<T>(_gradient * sign_of(_settings, parameter)));
                }
            }
            _engine.gradients_ready(unit);
        }
        _engine.end_micro_step();
        (void)_engine.step(learning_rate).report();
    }

    std::int64_t sum(std::int64_t value) { return combine(value, IntegerReduction::sum); }

    std::int64_t combine(std::int64_t value, IntegerReduction reduction) {
        _communicator.all_reduce_integers(&value, 1, reduction,
                                          HostBackend::default_compute_queue());
        return value;
    }

    Settings const& _settings;
    LoopbackCommunicator& _communicator;
    float _gradient;
    RememberedLeases _memory;
    Engine _engine;
    std::size_t _steps = 0;
};

Command read_command() {
    std::string line;
    std::getline(std::cin, line);
    return line == "step" ? Command::step : line == "check" ? Command::check : Command::quit;
}

template <int N, class T>
void serve(Settings const& settings) {
    std::size_t const program_bytes = resident_bytes();
    auto const body = [&](LoopbackCommunicator& communicator) {
        bool const is_first = communicator.rank() == 0;
        Rank<N, T> rank(communicator, settings);
        auto const planned = static_cast<long long>(rank.planned_bytes());
        if (is_first) {
            std::printf("{\"program_bytes\": %zu, \"planned_bytes\": %lld}\n", program_bytes,
                        planned);
        }
        while (true) {
            std::fflush(stdout);
            Command const command = rank.agree(is_first ? read_command() : Command{});
            if (command == Command::quit) {
                return;
            }
            if (command == Command::check) {
                bool const is_right = rank.is_right();
                if (is_first) {
                    std::printf("{\"is_right\": %s}\n", is_right ? "true" : "false");
                }
                continue;
            }
            double const seconds = rank.step();
            if (is_first) {
                std::printf("{\"seconds\": %.6f, \"resident_bytes\": %zu}\n", seconds,
                            resident_bytes());
            }
        }
    };
    run_ranks(world, LoopbackOptions{.time_out = std::chrono::hours(24)}, body); // ranks idle long
}

Settings parse(std::span<char*> arguments) {
    Settings settings;
    for (std::size_t index = 1; index < arguments.size(); ++index) {
        std::string const name = arguments[index];
        auto const value = [&] {
            if (++index == arguments.size()) {
                throw std::invalid_argument(name + " needs a value");
            }
            return std::string(arguments[index]);
        };
        if (name == "--stage") {
            settings.stage = std::stoi(value());
        } else if (name == "--dtype") {
            settings.dtype = value();
        } else if (name == "--scale") {
            settings.scale = std::stod(value());
        } else if (name == "--clip") {
            settings.is_clipped = true;
        } else if (name == "--write-gradients") {
            settings.writes_gradients = true;
        } else {
            throw std::invalid_argument(
                "unknown option '" + name
                + "'; usage: zero_step [--stage 0|1|2|3] [--dtype float32|bfloat16] [--scale S] "
                  "[--clip] [--write-gradients]");
        }
    }
    return settings;
}

} // namespace

int main(int argc, char** argv) {
    try {
        Settings const settings = parse({argv, static_cast<std::size_t>(argc)});
        if (settings.stage == 0 && settings.dtype != "float32" && !settings.writes_gradients) {
            throw std::invalid_argument("bfloat16 in stage 0 needs --write-gradients: the sums "
                                        "replace the gradients in the leases");
        }
        with_stage(settings.stage, [&]<int N>() {
            if (settings.dtype == "float32") {
                serve<N, float>(settings);
            } else if (settings.dtype == "bfloat16") {
                serve<N, bfloat16>(settings);
            } else {
                throw std::invalid_argument("--dtype is float32 or bfloat16");
            }
        });
        return EXIT_SUCCESS;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
