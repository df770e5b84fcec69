// Mistakes planted on purpose, and the tool that finds each of them.
// docs/guides/debug_a_divergence.md explains the output.

#include <zero/host/delaying_queue.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace {

// Counts the traffic, and compares every call between the ranks.
using Communicator = zero::Recording<zero::Checked<zero::LoopbackCommunicator>>;
template <int N>
using Zero = zero::ZeroStage<N, Communicator, zero::Sgd>;

constexpr int world = 2;
constexpr std::size_t elements = 1000; // in each of two layers

enum class Mistake { none, pointer_kept, unit_skipped_on_a_rank, model_differs, infinite_gradient };

struct Outcome {
    std::vector<std::uint64_t> fingerprints; ///< hash of all parameters after each step
    float kept = 0.0F;                       ///< read through a pointer that was kept too long
    zero::TrafficCount sent;                 ///< traffic of one rank in a step
    zero::Traffic expected;                  ///< traffic of all ranks in a step, by formulas
    std::string error;
};

/// Hashes the bits of all parameters. Equal hashes mean equal parameters, in any stage.
template <class Engine>
std::uint64_t fingerprint(Engine& engine) {
    zero::Hash hash;
    engine.for_each_full_parameter([&](std::size_t, auto values) {
        for (auto const value : values) hash.add(double{zero::to_float(value)});
    });
    return hash.value();
}

/// Trains under stage N. The model runs as commands on a queue: inline, or with random pauses if
/// `delays` is a seed.
template <int N>
Outcome train(Mistake mistake, float rate = 0.1F, std::uint64_t delays = 0) {
    Outcome outcome;
    auto const body = [&](zero::LoopbackCommunicator& transport) {
        zero::Checked checked(transport);
        Communicator communicator(checked);
        int const rank = communicator.rank();
        zero::host::DelayingQueue delaying(delays + static_cast<std::uint64_t>(rank));
        zero::host::InlineQueue at_once;
        zero::host::Queue* const queue =
            delays == 0 ? static_cast<zero::host::Queue*>(&at_once) : &delaying;
        std::size_t const second =
            mistake == Mistake::model_differs && rank == 1 ? elements + 1 : elements;
        std::vector<typename Zero<N>::Registration> const parameters{
            {.name = "first", .elements = elements, .units = {0}},
            {.name = "second", .elements = second, .units = {1}}};
        Zero<N> engine(
            communicator, parameters,
            {.non_finite = zero::NonFinite::throw_error, .poison = true, .compute_queue = queue});
        communicator.reset_recorded();
        float const* kept = nullptr;
        for (int step = 0; step < 3; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                for (std::size_t unit = 2; unit-- > 0;) {
                    if (mistake == Mistake::unit_skipped_on_a_rank && rank == 1 && step == 1
                        && unit == 1)
                        continue; // for instance an early exit
                    auto weights = engine.acquire(unit);
                    float const* const values = weights[unit].data();
                    float* const gradients = engine.gradients(unit)[unit].data();
                    bool const is_bad = mistake == Mistake::infinite_gradient && rank == 1
                                        && step == 2 && unit == 1;
                    float const bad = is_bad ? std::numeric_limits<float>::infinity() : 0.0F;
                    queue->enqueue([=] { // gradients that pull each weight to its own value
                        for (std::size_t i = 0; i < elements; ++i)
                            gradients[i] += values[i] - std::sin(static_cast<float>(i))
                                            + static_cast<float>(rank);
                        gradients[77] += bad;
                    });
                    weights.release();
                    engine.gradients_ready(unit);
                    kept = values; // reading it later is the mistake
                }
            }
            (void)engine.step(static_cast<double>(rate)).report(); // waits
            if (mistake == Mistake::pointer_kept && rank == 0) outcome.kept = kept[0];
            auto const sent = communicator.recorded(); // before the fingerprint gathers
            std::uint64_t const bits = fingerprint(engine);
            communicator.reset_recorded();
            if (rank != 0) continue;
            outcome.fingerprints.push_back(bits);
            outcome.sent = sent;
            outcome.expected = zero::step_traffic(engine.layout(), N, engine.schedule(), 1,
                                                  std::vector<std::size_t>{1, 0});
        }
    };
    try {
        zero::run_ranks(world, body);
    } catch (zero::Error const& error) {
        outcome.error = error.what();
    }
    return outcome;
}

bool report(char const* what, bool is_found) {
    std::printf("%s: %s\n", what, is_found ? "found" : "NOT FOUND");
    return is_found;
}

bool report(char const* what, Outcome const& outcome, char const* expected) {
    // The first rank to report is random, so the rank is left out.
    std::size_t const end = std::min(outcome.error.find(" (rank"), outcome.error.find(" (seen by"));
    std::printf("  %s\n", outcome.error.substr(0, end).c_str());
    return report(what, outcome.error.find(expected) != std::string::npos);
}

} // namespace

int main() {
    Outcome const right = train<0>(Mistake::none), sharded = train<3>(Mistake::none),
                  delayed = train<3>(Mistake::none, 0.1F, 42);
    bool is_good = report("no difference between stages 0 and 3, nor with delays",
                          right.error.empty() && right.fingerprints.size() == 3
                              && right.fingerprints == sharded.fingerprints
                              && right.fingerprints == delayed.fingerprints);
    auto const other = train<3>(Mistake::none, 0.1000001F).fingerprints;
    is_good &=
        report("another learning rate, in the first step", other[0] != right.fingerprints[0]);
    std::uint64_t const gathered = sharded.sent[zero::CollectiveKind::all_gather].elements,
                        reduced = sharded.sent[zero::CollectiveKind::reduce_scatter].elements;
    std::printf("  a step gathers %llu elements on a rank and reduces %llu\n",
                static_cast<unsigned long long>(gathered),
                static_cast<unsigned long long>(reduced));
    is_good &= report("traffic as in the formulas",
                      gathered * (world - 1) == sharded.expected.all_gather
                          && reduced * (world - 1) == sharded.expected.reduce_scatter);
    is_good &= report("a pointer that outlived its handle",
                      std::isnan(train<3>(Mistake::pointer_kept).kept)
                          && !std::isnan(train<0>(Mistake::pointer_kept).kept));
    is_good &= report("a rank that skips a unit", train<3>(Mistake::unit_skipped_on_a_rank),
                      "every rank must make the same calls in the same order");
    is_good &= report("ranks with different models", train<3>(Mistake::model_differs),
                      "parameter number 1 is 'second' (1000 elements");
    is_good &= report("a gradient that is not finite", train<3>(Mistake::infinite_gradient),
                      "element 77 of parameter 'second'");
    return is_good ? 0 : 1;
}
