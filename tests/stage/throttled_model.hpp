#pragma once

// Steps of stage 3 or 2 on hosts with slow links between them, with what the cost model predicts.

#include "support/ranks.hpp"
#include "support/throttled.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/stage/wire.hpp>
#include <zero/stage/zero_stage.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace zero::test::throttled_model {

using Link = Throttled<LoopbackCommunicator>;

/// Hosts of equal size, and a step on them.
struct Hosts {
    std::size_t hosts = 2, ranks_per_host = 2;
    Links links{}; ///< of one rank
    std::size_t micro_steps = 1;
    std::size_t elements = std::size_t{1} << 18U; ///< of all parameters, in two units
    std::size_t steps = 1;                        ///< measured ones

    [[nodiscard]] std::size_t world() const noexcept { return hosts * ranks_per_host; }
};

/// All ranks play every role.
struct Flat {
    using Communicator = Link;

    template <class Body>
    static void on(Link& all, LoopbackCommunicator&, Links&, Hosts const&, Body const& body) {
        body(all);
    }
    static void set(StepCommunicationOptions&, Hosts const&, std::size_t) {}
};

/// States are sharded inside a host.
struct InHosts {
    using Communicator = Groups<Link, Hybrid>;

    template <class Body>
    static void on(Link& all, LoopbackCommunicator& everyone, Links& links, Hosts const& hosts,
                   Body const& body) {
        auto const size = static_cast<int>(hosts.ranks_per_host);
        auto inside = everyone.split(everyone.rank() / size, everyone.rank());
        auto between = everyone.split(everyone.rank() % size, everyone.rank());
        Link shard(inside, links, std::vector<std::size_t>(hosts.ranks_per_host, 0));
        std::vector<std::size_t> numbers;
        for (std::size_t host = 0; host < hosts.hosts; ++host) {
            numbers.push_back(host);
        }
        Link replicas(between, links, numbers);
        Communicator groups(all, shard, replicas);
        body(groups);
    }
    static void set(StepCommunicationOptions& options, Hosts const& hosts, std::size_t rank) {
        options.replicas = hosts.hosts;
        options.replica = rank / hosts.ranks_per_host;
    }
};

/// What forward gathered is kept inside a host.
struct Copies {
    using Communicator = Groups<Link, Secondary>;

    template <class Body>
    static void on(Link& all, LoopbackCommunicator& everyone, Links& links, Hosts const& hosts,
                   Body const& body) {
        auto const size = static_cast<int>(hosts.ranks_per_host);
        auto inside = everyone.split(everyone.rank() / size, everyone.rank());
        Link part(inside, links, std::vector<std::size_t>(hosts.ranks_per_host, 0));
        Communicator groups(all, part);
        body(groups);
    }
    static void set(StepCommunicationOptions& options, Hosts const& hosts, std::size_t) {
        options.secondary_ranks = hosts.ranks_per_host;
    }
};

/// The seconds of a step.
struct Seconds {
    double throttled = 0; ///< as its links were in use, the longest of all ranks
    double shortest = 0;  ///< of all ranks
    double predicted = 0;
    double real = 0; ///< by the clock, of rank 0
};

/// Bytes of 64 elements in codes; 0: `Plain`.
template <class C>
constexpr std::size_t block_bytes_of() {
    if constexpr (std::is_same_v<C, Plain>) {
        return 0;
    } else {
        return C::bytes_per_block;
    }
}

/// Runs steps of `ZeroStage<N>` with bfloat16 parameters.
/// @tparam W `Wire<...>`, @param block_bytes of its codec of weights; 0: `Plain`
template <int N, class Kind, class W = Wire<>>
Seconds measure(Hosts const& hosts, std::size_t block_bytes = 0) {
    using Clock = std::chrono::steady_clock;
    using Levels = zero::detail::LevelsOf<typename W::GradientCodec>;
    using Between = typename Levels::Between;
    std::vector<ParameterSpec> const specs{{"first", hosts.elements / 2, {0}, 0, true},
                                           {"second", hosts.elements / 2, {1}, 0, true}};
    std::vector<std::size_t> numbers;
    for (std::size_t rank = 0; rank < hosts.world(); ++rank) {
        numbers.push_back(rank / hosts.ranks_per_host);
    }
    auto const measured =
        on_ranks<Seconds>(static_cast<int>(hosts.world()), [&](LoopbackCommunicator& everyone) {
            auto const rank = static_cast<std::size_t>(everyone.rank());
            Links links = hosts.links;
            Link all(everyone, links, numbers);
            Seconds own;
            Kind::on(all, everyone, links, hosts, [&](auto& communicator) {
                ZeroStage<N, Parameters<bfloat16>, W, typename Kind::Communicator> engine(
                    communicator, registration<bfloat16>(specs));
                (void)run_step(engine, rank, 0, hosts.micro_steps).report();
                links.reset();
                auto const start = Clock::now();
                for (std::size_t step = 1; step <= hosts.steps; ++step) {
                    (void)run_step(engine, rank, step, hosts.micro_steps).report();
                }
                auto const count = static_cast<double>(hosts.steps);
                own.real = std::chrono::duration<double>(Clock::now() - start).count() / count;
                own.throttled = links.seconds() / count;

                std::vector<std::size_t> units;
                for (std::size_t pass = 0; pass < hosts.micro_steps; ++pass) {
                    for (std::size_t const unit : {0U, 1U, 1U, 0U}) {
                        units.push_back(unit);
                    }
                }
                StepCommunicationOptions options{
                    .sizes = {.parameter = 2, .gradient = 2, .communication = 2},
                    .control_bytes = 30 * sizeof(std::int64_t),
                    .weight_block_bytes = block_bytes,
                    .gradient_block_bytes = block_bytes_of<typename Levels::Inside>(),
                    .replica_block_bytes = block_bytes_of<Between>()};
                auto const& layout = engine.layout();
                std::size_t const shard = rank % layout.world();
                Kind::set(options, hosts, rank);
                NetworkLevel host = hosts.links.between; // all ranks of a host send at once
                host.bytes_per_second *= static_cast<double>(hosts.ranks_per_host);
                own.predicted =
                    CommunicationModel(hosts.links.inside, host, hosts.ranks_per_host,
                                       CollectiveAlgorithm::direct)
                        .predict(layout.world(),
                                 count_step_communication(layout, shard, N, engine.schedule(),
                                                          hosts.micro_steps, units, options))
                        .total();
            });
            return own;
        });
    Seconds all = measured[0];
    all.shortest = all.throttled;
    for (Seconds const& own : measured) {
        all.throttled = own.throttled > all.throttled ? own.throttled : all.throttled;
        all.shortest = own.throttled < all.shortest ? own.throttled : all.shortest;
        all.predicted = own.predicted > all.predicted ? own.predicted : all.predicted;
    }
    return all;
}

} // namespace zero::test::throttled_model
