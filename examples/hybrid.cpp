// Four ranks on two hosts of two: the states are sharded over the ranks of a host, and both hosts
// hold a copy. The ranks end with equal parameters, and only sums of gradients go between hosts.

#include <zero/comm/groups.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;
using Zero = zero::ZeroStage<3, zero::AdamW, Hosts>;

namespace {

constexpr int ranks = 4, ranks_per_host = 2;
constexpr std::size_t elements = 4096, steps = 100, micro_steps = 3;

/// The results of a rank.
struct Result {
    std::vector<float> weight;
    std::uint64_t inside = 0;  ///< bytes read from the other rank of the host
    std::uint64_t between = 0; ///< bytes read from the other host
};

std::uint64_t bytes_of(zero::TrafficCount const& count) {
    return count[zero::CollectiveKind::reduce_scatter].bytes
           + count[zero::CollectiveKind::all_gather].bytes
           + count[zero::CollectiveKind::all_reduce].bytes;
}

/// Learns a wave. The gradients of the ranks differ, and their mean is the error.
Result train(Hosts& hosts) {
    std::vector<Zero::Registration> const parameters{{.name = "weight", .elements = elements}};
    Zero engine(hosts, parameters);
    hosts.shard().reset_traffic();
    hosts.replicas().reset_traffic();
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(micro_steps)) {
            std::size_t const number = engine.micro_batch(micro_step); // differs between all ranks
            auto const weights = engine.acquire(0);
            auto const gradients = engine.gradients(0);
            auto const weight = weights[0];
            auto const gradient = gradients[0];
            for (std::size_t i = 0; i < elements; ++i) {
                float const wanted = std::sin(static_cast<float>(i));
                float const noise = number % 2 == 0 ? 0.25F : -0.25F;
                gradient[i] += weight[i] - wanted + noise;
            }
            engine.gradients_ready(0);
        }
        engine.step(0.05);
    }
    Result result;
    result.inside = bytes_of(hosts.shard().traffic()) / steps;
    result.between = bytes_of(hosts.replicas().traffic()) / steps;
    engine.for_each_full_parameter([&](std::size_t, std::span<float const> values) {
        result.weight.assign(values.begin(), values.end());
    });
    return result;
}

} // namespace

int main() {
    std::vector<Result> results(ranks);
    zero::run_ranks<Hosts>(ranks, {.shard = ranks_per_host}, [&](Hosts& hosts) {
        results[static_cast<std::size_t>(hosts.rank())] = train(hosts);
    });
    Result const& first = results.front();
    float error = 0.0F;
    bool is_same = true;
    for (std::size_t i = 0; i < elements; ++i) {
        error = std::fmax(error, std::fabs(first.weight[i] - std::sin(static_cast<float>(i))));
    }
    for (Result const& result : results) {
        is_same = is_same && result.weight == first.weight;
    }
    std::printf(
        "largest error %.3f; a rank reads %llu bytes per step inside its host, %llu between "
        "hosts\n",
        static_cast<double>(error), static_cast<unsigned long long>(first.inside),
        static_cast<unsigned long long>(first.between));
    // inside: a gather and a reduction in each micro-step; between: one all-reduce in a step
    std::size_t const bytes = elements * sizeof(float);
    bool const is_expected = first.inside == micro_steps * 2 * bytes / 2
                             && first.between == 2 * bytes / (2 * ranks_per_host);
    return error < 0.05F && is_same && is_expected ? 0 : 1;
}
