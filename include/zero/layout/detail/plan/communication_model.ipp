#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../communication_model.hpp"
#include "../../memory_plan.hpp"
#include "../../wire_chunk.hpp"
#include "../leases/gather_order.hpp"

namespace ZERO_NAMESPACE {

namespace detail {

/// @brief Throws `InvalidArgument` unless latency and bandwidth are in range.
ZERO_COLD_INLINE void require_level(NetworkLevel const& level, char const* name) {
    // x - x is NaN for infinities and NaN.
    bool const has_latency =
        level.latency_seconds >= 0 && level.latency_seconds - level.latency_seconds == 0;
    bool const has_bandwidth =
        level.bytes_per_second > 0 && level.bytes_per_second - level.bytes_per_second == 0;
    if (!has_latency) {
        throw_error<InvalidArgument>({"zero: the latency_seconds of the network level '", name,
                                      "' must be finite and at least 0, such as 5e-6."});
    }
    if (!has_bandwidth) {
        throw_error<InvalidArgument>({"zero: the bytes_per_second of the network level '", name,
                                      "' must be finite and above 0, such as 25e9."});
    }
}

/// @brief Returns the seconds of `messages` messages that move `bytes` altogether.
constexpr double message_seconds(NetworkLevel const& level, double messages,
                                 double bytes) noexcept {
    return messages * level.latency_seconds + bytes / level.bytes_per_second;
}

/// @brief Returns the rounds of recursive doubling among `ranks` ranks.
constexpr double doubling_rounds(double ranks) noexcept {
    double rounds = 0;
    double reached = 1;
    while (reached < ranks) {
        reached *= 2;
        rounds += 1;
    }
    return rounds;
}

/// @brief Throws `InvalidArgument` unless the arguments of `count_step_communication` are in range.
ZERO_COLD_INLINE void require_step(FlatLayout const& layout, int stage, std::size_t micro_steps,
                                   std::span<std::size_t const> acquired_units) {
    if (stage < 0 || stage > 3) {
        throw_error<InvalidArgument>({"zero: there is no stage ", stage, "; stages are 0 to 3."});
    }
    if (micro_steps == 0) {
        throw_error<InvalidArgument>(
            {"zero: a step has at least one micro-step, and 'micro_steps' is 0."});
    }
    for (std::size_t const unit : acquired_units) {
        if (unit >= layout.units()) {
            throw_error<InvalidArgument>({"zero: there is no unit ", unit, "; the layout has ",
                                          layout.units(), " units, numbered from 0."});
        }
    }
}

/// @brief The elements of a bucket that a rank reads.
struct ReadElements {
    std::uint64_t reduced = 0;  ///< in a reduce-scatter
    std::uint64_t gathered = 0; ///< in an all-gather
};

/// @brief Counts the reduce-scatters and all-gathers of a step. `read(bucket)` returns what the
/// rank reads.
template <class Read>
Traffic count_traffic(FlatLayout const& layout, int stage, ReductionSchedule schedule,
                      std::size_t micro_steps, std::span<std::size_t const> acquired_units,
                      GatherOptions const& gather, Read const& read) {
    Traffic traffic;
    std::uint64_t const reductions = schedule == ReductionSchedule::boundary ? 1 : micro_steps;
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        ReadElements const elements = read(bucket);
        traffic.reduce_scatter += reductions * elements.reduced;
        traffic.all_gather += stage == 3 ? 0 : elements.gathered;
    }
    if (stage == 3) {
        auto const counts = count_gathers(layout, micro_steps, acquired_units, gather);
        for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
            traffic.all_gather += counts[bucket] * read(bucket).gathered;
        }
    }
    return traffic;
}

} // namespace detail

ZERO_COLD_INLINE CommunicationModel::CommunicationModel(NetworkLevel network)
    : _inside(network), _between(network), _ranks_per_host(0),
      _algorithm(CollectiveAlgorithm::ring) {
    detail::require_level(network, "network");
}

ZERO_COLD_INLINE CommunicationModel::CommunicationModel(NetworkLevel inside, NetworkLevel between,
                                                        std::size_t ranks_per_host,
                                                        CollectiveAlgorithm algorithm)
    : _inside(inside), _between(between), _ranks_per_host(ranks_per_host), _algorithm(algorithm) {
    detail::require_level(inside, "inside");
    detail::require_level(between, "between");
    if (ranks_per_host == 0) {
        detail::throw_error<InvalidArgument>(
            {"zero: a host has at least one rank, and 'ranks_per_host' is 0."});
    }
    if (algorithm > CollectiveAlgorithm::hierarchical) {
        detail::throw_error<InvalidArgument>(
            {"zero: 'algorithm' must be ring, direct or hierarchical."});
    }
}

ZERO_COLD_INLINE CommunicationModel::Spread CommunicationModel::spread(std::size_t world) const {
    if (world == 0) {
        detail::throw_error<InvalidArgument>({"zero: a group has at least one rank, and 'world' is "
                                              "0."});
    }
    if (_ranks_per_host == 0 || world <= _ranks_per_host) {
        return {static_cast<double>(world), 1};
    }
    if (world % _ranks_per_host != 0) {
        detail::throw_error<InvalidArgument>(
            {"zero: ", world, " ranks do not fill hosts of ", _ranks_per_host,
             " ranks; the model needs as many ranks on every host."});
    }
    std::size_t const hosts = world / _ranks_per_host;
    return {static_cast<double>(_ranks_per_host), static_cast<double>(hosts)};
}

ZERO_COLD_INLINE double CommunicationModel::collective_seconds(std::size_t world,
                                                               CommunicationTerm term) const {
    auto const [on_host, hosts] = spread(world);
    double const ranks = on_host * hosts;
    if (ranks == 1) {
        return 0;
    }
    auto const calls = static_cast<double>(term.calls);
    auto const read = static_cast<double>(term.bytes);
    if (hosts == 1) {
        return detail::message_seconds(_inside, calls * (ranks - 1), read);
    }
    if (on_host == 1) {
        return detail::message_seconds(_between, calls * (ranks - 1), read);
    }
    double const whole = read * ranks / (ranks - 1); // bytes of the buckets
    double const wider =                             // the same between levels
        term.bytes_between == 0 ? whole
                                : static_cast<double>(term.bytes_between) * ranks / (ranks - 1);
    switch (_algorithm) {
    case CollectiveAlgorithm::ring:
        return calls * (ranks - 1)
                   * detail::larger(_inside.latency_seconds, _between.latency_seconds)
               + read / detail::smaller(_inside.bytes_per_second, _between.bytes_per_second);
    case CollectiveAlgorithm::direct:
        return detail::message_seconds(_inside, calls * (on_host - 1),
                                       whole * (on_host - 1) / ranks)
               + detail::message_seconds(_between, calls * (ranks - on_host),
                                         whole * (ranks - on_host) / ranks * on_host);
    case CollectiveAlgorithm::hierarchical: break;
    }
    return detail::message_seconds(_inside, calls * (on_host - 1), whole * (on_host - 1) / on_host)
           + detail::message_seconds(_between, calls * (hosts - 1), wider * (hosts - 1) / hosts);
}

ZERO_COLD_INLINE double CommunicationModel::control_seconds(std::size_t world,
                                                            CommunicationTerm term) const {
    auto const [on_host, hosts] = spread(world);
    auto const calls = static_cast<double>(term.calls);
    auto const payload = static_cast<double>(term.bytes);
    double const inside = detail::doubling_rounds(on_host);
    double const between = detail::doubling_rounds(hosts);
    return detail::message_seconds(_inside, calls * inside, payload * inside)
           + detail::message_seconds(_between, calls * between, payload * between);
}

ZERO_COLD_INLINE double CommunicationModel::replica_seconds(std::size_t world,
                                                            StepCommunication const& step) const {
    if (_ranks_per_host == 0) {
        return collective_seconds(step.replicas, step.replicated);
    }
    auto const at_once = static_cast<double>(detail::smaller(world, _ranks_per_host));
    NetworkLevel const share{_between.latency_seconds, _between.bytes_per_second / at_once};
    std::size_t const on_host = detail::larger(_ranks_per_host / world, std::size_t{1});
    return CommunicationModel(_inside, share, on_host, _algorithm)
        .collective_seconds(step.replicas, step.replicated);
}

ZERO_COLD_INLINE CommunicationSeconds
CommunicationModel::predict(std::size_t world, StepCommunication const& step) const {
    double const secondary =
        step.secondary_ranks == 0 ? 0 : collective_seconds(step.secondary_ranks, step.secondary);
    return {.gathers = collective_seconds(world, step.gathers) + secondary,
            .reductions = collective_seconds(world, step.reductions)
                          + (step.replicas == 1 ? 0 : replica_seconds(world, step)),
            .publishes = collective_seconds(world, step.publishes),
            .control = control_seconds(world * step.replicas, step.control)};
}

ZERO_COLD_INLINE NetworkLevel fit_network_level(std::size_t world, CollectiveSample shorter,
                                                CollectiveSample longer) {
    if (world < 2) {
        detail::throw_error<InvalidArgument>({"zero: a network level is fitted to the collectives "
                                              "of at least 2 ranks, and 'world' is ",
                                              world, '.'});
    }
    double const bytes = longer.read_bytes - shorter.read_bytes;
    double const seconds = longer.seconds - shorter.seconds;
    bool const is_ascending = shorter.read_bytes >= 0 && shorter.seconds >= 0 && bytes > 0
                              && seconds > 0 && bytes - bytes == 0 && seconds - seconds == 0;
    if (!is_ascending) {
        detail::throw_error<InvalidArgument>(
            {"zero: a network level is fitted to two finite samples of which 'longer' reads more "
             "bytes and takes more seconds; measure sizes that lie further apart, or repeat the "
             "measurement more often."});
    }
    NetworkLevel level;
    level.bytes_per_second = bytes / seconds;
    double const rest = shorter.seconds - shorter.read_bytes / level.bytes_per_second;
    level.latency_seconds = rest > 0 ? rest / static_cast<double>(world - 1) : 0;
    return level;
}

ZERO_COLD_INLINE StepCommunication count_step_communication(
    FlatLayout const& layout, std::size_t rank, int stage, ReductionSchedule schedule,
    std::size_t micro_steps, std::span<std::size_t const> acquired_units,
    StepCommunicationOptions const& options) {
    detail::require_rank(layout, rank);
    detail::require_step(layout, stage, micro_steps, acquired_units);
    auto const bytes = [](std::uint64_t count, std::size_t of_element, std::size_t of_block) {
        return of_block == 0 ? of_element * count : count / granularity * of_block;
    };
    StepCommunication step;
    step.control = {options.control_calls, options.control_bytes};
    if (options.replicas != 1) {
        std::size_t const block_bytes = options.replica_block_bytes;
        std::size_t const element_bytes = options.replica_element_bytes == 0
                                              ? options.sizes.communication
                                              : options.replica_element_bytes;
        std::uint64_t const read =
            replica_traffic_of_rank(layout, rank, options.replica, options.replicas);
        step.replicas = options.replicas;
        step.replicated.bytes = bytes(read, element_bytes, block_bytes);
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            std::size_t const own = layout.extent(bucket, rank).size();
            std::size_t const part = options.wire_elements == 0 ? own : options.wire_elements;
            std::size_t const chunks =
                block_bytes == 0 ? (own == 0 ? 0 : (own + part - 1) / part)
                                 : exchange_chunks(
                                     parts_of_replicas(layout, bucket, rank, options.replicas).cuts,
                                     coded_capacity(options.gradient_wire_bytes, block_bytes));
            step.replicated.calls += 2 * chunks;
        }
    }
    if (layout.world() == 1) { // nothing is sent inside
        return options.replicas == 1 ? StepCommunication{} : step;
    }
    std::uint64_t sent = 0;    // collectives that send all gradients once
    std::uint64_t buckets = 0; // collectives that gather all trainable buckets once
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        Cuts const cuts = layout.cuts(bucket);
        std::size_t const is_sent = cuts.back() == 0 ? 0 : 1;
        sent += options.gradient_block_bytes != 0 ? exchange_chunks(
                    cuts, coded_capacity(options.gradient_wire_bytes, options.gradient_block_bytes))
                : options.wire_elements == 0 ? is_sent
                                             : wire_chunks(cuts, options.wire_elements);
        buckets += is_sent;
    }
    Traffic const traffic = step_traffic_of_rank(layout, rank, stage, schedule, micro_steps,
                                                 acquired_units, options.gather, options.in_tree);
    ElementSizes const& sizes = options.sizes;
    auto const weight_bytes = [&](std::uint64_t elements, std::uint64_t frozen) {
        return bytes(frozen, sizes.parameter, options.frozen_block_bytes)
               + bytes(elements - frozen, sizes.parameter, options.weight_block_bytes);
    };
    std::uint64_t const reductions = schedule == ReductionSchedule::boundary ? 1 : micro_steps;
    std::uint64_t const reduced = traffic.reduce_scatter + traffic.all_reduce;
    step.reductions = {reductions * sent,
                       bytes(reduced, sizes.communication, options.gradient_block_bytes),
                       options.in_tree ? sizeof(float) * reduced : 0};
    if (stage == 0) {
        bool const is_all_reduce = reductions == 1 && !options.in_tree;
        step.reductions.calls += is_all_reduce ? sent : buckets;
        step.reductions.bytes += sizes.accumulation * traffic.all_gather;
        step.reductions.bytes_between +=
            options.in_tree ? sizes.accumulation * traffic.all_gather : 0;
    } else if (stage == 3) {
        auto const counts =
            detail::count_gathers(layout, micro_steps, acquired_units, options.gather);
        std::uint64_t frozen = 0; // gathered elements
        for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
            step.gathers.calls += layout.elements(bucket) == 0 ? 0 : counts[bucket];
            bool const has_copy = options.secondary_ranks != 0 && counts[bucket] != 0;
            frozen += layout.bucket(bucket).trainable
                          ? 0
                          : (has_copy ? 1 : counts[bucket])
                                * (layout.elements(bucket) - layout.extent(bucket, rank).size());
        }
        step.gathers.bytes = weight_bytes(traffic.all_gather, frozen);
        if (options.secondary_ranks != 0) {
            auto const divided =
                step_traffic_with_secondary(layout, rank, options.secondary_ranks, schedule,
                                            micro_steps, acquired_units, options.gather);
            std::uint64_t first = 0; // gathers of a bucket that has no copy yet
            for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
                first += layout.elements(bucket) == 0 || counts[bucket] == 0 ? 0 : 1;
            }
            step.secondary = {step.gathers.calls - first, sizes.parameter * divided.secondary};
            step.secondary_ranks = options.secondary_ranks;
            step.gathers = {first, weight_bytes(divided.everyone.all_gather, frozen)};
        }
    } else {
        step.publishes = {buckets, weight_bytes(traffic.all_gather, 0)};
    }
    return step;
}

ZERO_COLD_INLINE Traffic step_traffic_of_rank(FlatLayout const& layout, std::size_t rank, int stage,
                                              ReductionSchedule schedule, std::size_t micro_steps,
                                              std::span<std::size_t const> acquired_units,
                                              GatherOptions const& gather, bool in_tree) {
    detail::require_rank(layout, rank);
    Traffic traffic = detail::count_traffic(
        layout, stage, schedule, micro_steps, acquired_units, gather,
        [&](std::size_t bucket) -> detail::ReadElements {
            std::size_t const own = layout.extent(bucket, rank).size();
            return {own * (layout.world() - 1), layout.elements(bucket) - own};
        });
    bool const is_once = schedule == ReductionSchedule::boundary || micro_steps == 1;
    if (stage == 0 && is_once && !in_tree) {
        return {.all_reduce = traffic.reduce_scatter + traffic.all_gather};
    }
    return traffic;
}

ZERO_COLD_INLINE LevelTraffic step_traffic_of_levels(FlatLayout const& layout, std::size_t rank,
                                                     std::size_t inner_ranks, int stage,
                                                     ReductionSchedule schedule,
                                                     std::size_t micro_steps,
                                                     std::span<std::size_t const> acquired_units,
                                                     GatherOptions const& gather) {
    detail::require_rank(layout, rank);
    if (inner_ranks < 2 || layout.world() % inner_ranks != 0 || inner_ranks == layout.world()) {
        detail::throw_error<InvalidArgument>(
            {"zero: ", layout.world(), " ranks do not have two levels with 'inner_ranks' = ",
             inner_ranks, "; give a divisor of the ranks that is neither 1 nor all of them."});
    }
    std::size_t const outer = layout.world() / inner_ranks;
    auto const count = [&](auto const& read) {
        return detail::count_traffic(layout, stage, schedule, micro_steps, acquired_units, gather,
                                     read);
    };
    auto const group = [&](std::size_t bucket) { // of the extents of an inner rank
        Cuts const cuts = layout.cuts(bucket);
        std::size_t const first = rank / outer * outer;
        return cuts[first + outer] - cuts[first];
    };
    return {count([&](std::size_t bucket) -> detail::ReadElements {
                return {group(bucket) * (inner_ranks - 1), layout.elements(bucket) - group(bucket)};
            }),
            count([&](std::size_t bucket) -> detail::ReadElements {
                std::size_t const own = layout.extent(bucket, rank).size();
                return {own * (outer - 1), group(bucket) - own};
            })};
}

ZERO_COLD_INLINE std::uint64_t replica_traffic_of_rank(FlatLayout const& layout, std::size_t rank,
                                                       std::size_t replica, std::size_t replicas) {
    detail::require_rank(layout, rank);
    detail::require_replica(replica, replicas);
    std::uint64_t elements = 0;
    for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
        std::size_t const own = layout.extent(bucket, rank).size();
        std::size_t const part = even_extent(own, replicas);
        std::size_t const begin = detail::smaller(part * replica, own);
        std::size_t const summed = detail::smaller(part, own - begin);
        elements += summed * (replicas - 1) + (own - summed);
    }
    return elements;
}

ZERO_COLD_INLINE SecondaryTraffic step_traffic_with_secondary(
    FlatLayout const& layout, std::size_t rank, std::size_t secondary_ranks,
    ReductionSchedule schedule, std::size_t micro_steps,
    std::span<std::size_t const> acquired_units, GatherOptions const& gather) {
    SecondaryTraffic traffic{
        step_traffic_of_rank(layout, rank, 3, schedule, micro_steps, acquired_units, gather)};
    std::size_t const world = layout.world();
    if (secondary_ranks <= 1 || secondary_ranks == world || world % secondary_ranks != 0) {
        detail::throw_error<InvalidArgument>(
            {"zero: of ", world, " ranks, ", secondary_ranks,
             " cannot share a secondary copy; give a divisor of the ranks that is neither 1 nor "
             "all of them."});
    }
    auto const counts = detail::count_gathers(layout, micro_steps, acquired_units, gather);
    for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
        if (counts[bucket] > 1) {
            std::size_t const elements = layout.elements(bucket);
            std::uint64_t const later = counts[bucket] - 1;
            traffic.everyone.all_gather -= later * (elements - layout.extent(bucket, rank).size());
            traffic.secondary +=
                later
                * (elements
                   - secondary_range(layout, bucket, rank % secondary_ranks, secondary_ranks)
                         .size());
        }
    }
    return traffic;
}

ZERO_COLD_INLINE Traffic step_traffic(FlatLayout const& layout, int stage,
                                      ReductionSchedule schedule, std::size_t micro_steps,
                                      std::span<std::size_t const> acquired_units,
                                      GatherOptions const& gather, bool in_tree) {
    Traffic sum;
    for (std::size_t rank = 0; rank < layout.world(); ++rank) {
        Traffic const own = step_traffic_of_rank(layout, rank, stage, schedule, micro_steps,
                                                 acquired_units, gather, in_tree);
        sum.reduce_scatter += own.reduce_scatter;
        sum.all_gather += own.all_gather;
        sum.all_reduce += own.all_reduce;
    }
    return sum;
}

} // namespace ZERO_NAMESPACE
