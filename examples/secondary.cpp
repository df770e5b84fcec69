// Four ranks on two hosts of two, in stage 3: what the forward pass gathered stays on each host
// once, half of it on each rank, and the backward pass reads nothing from the other host. The bits
// are those of the run without copies.

#include <zero/comm/secondary.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

using Flat = zero::ZeroStage<3, zero::AdamW>;
using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;
using Zero = zero::ZeroStage<3, zero::AdamW, Hosts>;

namespace {

constexpr int ranks = 4, ranks_per_host = 2;
constexpr std::size_t elements = 4096, units = 3, steps = 20, micro_steps = 2;

/// Learns zeros: the gradient of a weight is the weight itself.
template <class Engine>
void train(Engine& engine) {
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        for ([[maybe_unused]] auto const micro_step : engine.micro_steps(micro_steps)) {
            for (std::size_t unit = 0; unit < units; ++unit) { // forward
                auto const weights = engine.acquire(unit);
            }
            for (std::size_t unit = units; unit-- > 0;) { // backward
                auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                auto const weight = weights[unit];
                auto const gradient = gradients[unit];
                for (std::size_t i = 0; i < elements; ++i) {
                    gradient[i] += weight[i];
                }
                engine.gradients_ready(unit);
            }
        }
        engine.step(0.05);
    }
}

template <class Engine>
std::vector<float> values_of(Engine& engine) {
    std::vector<float> all;
    engine.for_each_full_parameter([&](std::size_t, std::span<float const> values) {
        all.insert(all.end(), values.begin(), values.end());
    });
    return all;
}

std::vector<Zero::Registration> parameters() {
    std::vector<Zero::Registration> list;
    for (std::size_t unit = 0; unit < units; ++unit) {
        auto const initialise = [](std::size_t begin, std::span<float> values) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = 1.0F + static_cast<float>(begin + i) / elements;
            }
        };
        list.push_back({.name = "weight " + std::to_string(unit),
                        .elements = elements,
                        .units = {unit},
                        .initialise = initialise});
    }
    return list;
}

std::uint64_t gathered(zero::TrafficCount const& count) {
    return count[zero::CollectiveKind::all_gather].bytes / steps;
}

} // namespace

int main() {
    std::vector<float> expected;
    zero::run_ranks(ranks, [&](zero::LoopbackCommunicator& communicator) {
        Flat engine(communicator, parameters());
        train(engine);
        auto const values = values_of(engine);
        if (communicator.rank() == 0) {
            expected = values;
        }
    });
    bool is_same = false;
    std::uint64_t everywhere = 0, on_host = 0; // bytes that rank 0 reads in the gathers of a step
    zero::run_ranks<Hosts>(ranks, {.secondary = ranks_per_host}, [&](Hosts& hosts) {
        Zero engine(hosts, parameters());
        hosts.everyone().reset_traffic();
        hosts.secondary().reset_traffic();
        train(engine);
        if (hosts.rank() == 0) {
            everywhere = gathered(hosts.everyone().traffic());
            on_host = gathered(hosts.secondary().traffic());
        }
        auto const values = values_of(engine);
        if (hosts.rank() == 0) {
            is_same = values == expected;
        }
    });
    std::printf("a rank gathers %llu bytes per step over all ranks, and %llu inside its host\n",
                static_cast<unsigned long long>(everywhere),
                static_cast<unsigned long long>(on_host));
    // the first forward pass gathers from all ranks, and every later pass of the step inside
    std::size_t const bytes = units * elements * sizeof(float);
    bool const is_expected =
        everywhere == bytes * 3 / 4 && on_host == (2 * micro_steps - 1) * bytes / 2;
    return is_same && is_expected ? 0 : 1;
}
