#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/set_by_name.hpp"
#include "element_sizes.hpp"
#include "flat_layout.hpp"
#include "gather_options.hpp"
#include "stage_table.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Throws `InvalidArgument` unless the layout has such a rank.
inline void require_rank(FlatLayout const& layout, std::size_t rank) {
    if (rank >= layout.world()) {
        throw_error<InvalidArgument>({"zero: there is no rank ", rank, "; the layout has ",
                                      layout.world(), " ranks, numbered from 0."});
    }
}

/// @brief Throws `InvalidArgument` unless there is such a replica.
inline void require_replica(std::size_t replica, std::size_t replicas) {
    if (replica >= replicas) {
        throw_error<InvalidArgument>({"zero: there is no replica ", replica, "; there are ",
                                      replicas, ", numbered from 0."});
    }
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief One level of a network, as the ranks that communicate over it see it: a message of n
/// bytes takes `latency_seconds + n / bytes_per_second` (Thakur, Rabenseifner and Gropp,
/// Optimization of Collective Communication Operations in MPICH, 2005, section "Cost Model").
struct NetworkLevel {
    double latency_seconds = 0;  ///< latency of one message; finite, at least 0
    double bytes_per_second = 0; ///< bandwidth in one direction, while all ranks communicate;
                                 ///< finite, above 0
};

/// @brief A measured reduce-scatter or all-gather of equal extents.
struct CollectiveSample {
    double read_bytes = 0; ///< bytes that one rank reads from the others: (W - 1) / W of the bucket
    double seconds = 0;    ///< the time of the collective
};

/// @brief Returns the level on which both collectives take as long as measured:
/// (W - 1) `latency_seconds` + `read_bytes` / `bytes_per_second`.
///
/// If the two measurements give a negative latency, the latency is 0.
/// @param world number of ranks that measured, at least 2
/// @param shorter reads fewer bytes, and takes less time, than `longer`
/// @throws InvalidArgument if an argument is out of range
NetworkLevel fit_network_level(std::size_t world, CollectiveSample shorter,
                               CollectiveSample longer);

/// @brief The collectives of one purpose in a step, as one rank sees them.
struct CommunicationTerm {
    /// @brief Number of reduce-scatters and all-gathers. An all-reduce counts as one of each.
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0; ///< read from other ranks

    /// @brief The same, of elements as they travel between the levels of `Hierarchical`; 0: `bytes`
    std::uint64_t bytes_between = 0;

    friend bool operator==(CommunicationTerm, CommunicationTerm) = default;
};

/// @brief The collectives of one optimizer step by purpose, as one rank sees them.
struct StepCommunication {
    CommunicationTerm gathers;    ///< parameters of acquired units (stage 3)
    CommunicationTerm reductions; ///< gradients; in stage 0 the gather of their sums as well
    CommunicationTerm publishes;  ///< updated parameters (stages 1 and 2)

    /// @brief All-reduces of a few integers: the norm, the overflow and the settings. Each is one
    /// call, and its bytes are the payload.
    CommunicationTerm control;

    CommunicationTerm secondary{};   ///< gathers from secondary copies (stage 3)
    std::size_t secondary_ranks = 0; ///< k, the ranks among which these are; 0: there are none

    CommunicationTerm replicated{}; ///< sums of gradients between replicas, once a step
    std::size_t replicas = 1;       ///< R, the number of replicas

    friend bool operator==(StepCommunication const&, StepCommunication const&) = default;
};

/// @brief Properties of a step, besides layout and stage, that set its number of calls and bytes.
struct StepCommunicationOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    ElementSizes sizes{}; ///< element sizes of the only parameter type of the layout

    /// @brief Elements of the buffer in which gradients are converted to the communication type; a
    /// larger bucket is sent in chunks. 0: gradients are not converted.
    std::size_t wire_elements = 0;
    std::size_t control_calls = 1;                    ///< 2 if gradients are inspected over a
                                                      ///< communicator that does not sum and
                                                      ///< minimise integers together
    std::size_t control_bytes = sizeof(std::int64_t); ///< payload of all of them; stage 3 adds
                                                      ///< 24 that compare the order of units
    GatherOptions gather{};                           ///< as for `step_traffic_of_rank`
    bool in_tree = false;                             ///< the same

    /// @brief k, for an engine of stage 3 on `Groups<C, Secondary>`; 0 without
    std::size_t secondary_ranks = 0;

    /// @brief R, for an engine on `Groups<C, Hybrid>`, whose layout is that of G ranks; 1 without
    std::size_t replicas = 1;
    std::size_t replica = 0;               ///< the number of this rank's replica, below `replicas`
    std::size_t replica_element_bytes = 0; ///< of a sum between replicas: 4 for `HybridInFloat`; 0:
                                           ///< as in `sizes.communication`

    /// @brief `Codec::bytes_per_block` of the weights of `Wire`; 0: they travel in their type, as
    /// secondary copies always do
    std::size_t weight_block_bytes = 0;
    std::size_t frozen_block_bytes = 0; ///< the same of frozen parameters, for `FrozenWeights`

    std::size_t gradient_block_bytes = 0; ///< the same of the gradients, in stages 1 to 3
    std::size_t replica_block_bytes = 0;  ///< the same of sums between replicas

    /// @brief With either: `GradientReductionOptions::wire_bytes`; `wire_elements` is not used then
    std::size_t gradient_wire_bytes = std::size_t{25} << 20U;
};

/// @brief Counts the collectives of one optimizer step and the bytes that a rank reads in them:
/// those of `step_traffic_of_rank`, split by purpose, and of `replica_traffic_of_rank`.
/// O(buckets + acquired units).
///
/// All ranks together send what they read. With uneven extents take the maximum over the ranks.
/// @param stage 0 to 3
/// @param micro_steps micro-steps accumulated in the step, at least 1
/// @param acquired_units the units acquired during the step, once per acquisition (stage 3 only)
/// @throws InvalidArgument if the layout has no such rank or unit, or an argument is out of range
StepCommunication count_step_communication(FlatLayout const& layout, std::size_t rank, int stage,
                                           ReductionSchedule schedule, std::size_t micro_steps,
                                           std::span<std::size_t const> acquired_units,
                                           StepCommunicationOptions const& options = {});

/// @brief The algorithm of a reduce-scatter or an all-gather across hosts. On one host, and with
/// one rank per host, all of them take the same time.
enum class CollectiveAlgorithm : std::uint8_t {
    /// @brief W - 1 messages along a ring of all ranks, in which hosts follow one another. One rank
    /// of a host sends to another host at a time, and each message takes as long as the slowest.
    ring,

    /// @brief Each rank reads from each other rank, in W - 1 messages. All ranks of a host send to
    /// other hosts at the same time.
    direct,

    /// @brief Inside the hosts first, then between them (all-gather: the other way round).
    hierarchical
};

/// @brief Returns the name of an algorithm: "ring", "direct" or "hierarchical".
constexpr char const* name_of(CollectiveAlgorithm algorithm) noexcept {
    return algorithm == CollectiveAlgorithm::ring     ? "ring"
           : algorithm == CollectiveAlgorithm::direct ? "direct"
                                                      : "hierarchical";
}

/// @brief The predicted seconds that the collectives of a step take one after another.
/// `StepCommunication` explains the terms.
struct CommunicationSeconds {
    double gathers = 0;    ///< parameters of acquired units, secondary copies included (stage 3)
    double reductions = 0; ///< gradients, sums between replicas included
    double publishes = 0;  ///< updated parameters (stages 1 and 2)
    double control = 0;    ///< all-reduces of a few integers

    /// @brief Returns the sum of all terms.
    [[nodiscard]] constexpr double total() const noexcept {
        return gathers + reductions + publishes + control;
    }
};

/// @brief Predicts how long the collectives of a step take, from the latency and the bandwidth of
/// one or two levels of a network.
///
/// A reduce-scatter or an all-gather of n bytes among W ranks takes (W - 1) a + (W - 1) / W n / b
/// on one level with latency a and bandwidth b, whether along a ring or directly. An all-reduce
/// takes the sum of both (Thakur, Rabenseifner and Gropp, Optimization of Collective Communication
/// Operations in MPICH, 2005, sections "Allgather", "Reduce-Scatter" and "Reduce and Allreduce").
/// The cost of the additions has no term of its own: a bandwidth measured with a reduce-scatter
/// contains it.
///
/// Let G be the ranks on each of R hosts, so W = G R. Latency and bandwidth are a and b inside a
/// host, A and B between hosts; B is the bandwidth of a whole host. Then:
///
/// | algorithm | seconds |
/// |---|---|
/// | ring | (W - 1) max(a, A) + (W - 1) / W n max(1 / b, 1 / B) |
/// | direct | (G - 1) a + (G - 1) / W n / b + (W - G) A + (W - G) / W n G / B |
/// | hierarchical | (G - 1) a + (G - 1) / G n / b + (R - 1) A + (R - 1) / R n / B |
///
/// Between the levels of `hierarchical` n is larger where a reduction in a tree sends floats.
/// The formula of the ring holds for two or more ranks per host; with one rank there is no b. A few
/// integers are reduced by recursive doubling. On each level it takes as many messages as the
/// binary logarithm of the number of ranks, rounded up.
///
/// The R replicas of `Groups<C, Hybrid>` add their sums on the level between hosts. There are then
/// min(G, ranks on a host) such sums at once, which share the bandwidth of a host.
///
/// Collectives are counted one after another, as on one communication queue, and so are the two
/// levels of one collective. The model knows neither computation nor overlap: how much of the sum a
/// step waits for depends on the trainer.
class CommunicationModel {
public:
    /// @brief All ranks communicate over one level.
    /// @throws InvalidArgument naming the member that is out of range
    explicit CommunicationModel(NetworkLevel network);

    /// @brief Ranks on one host communicate over `inside`, others over `between`.
    /// @param between its bandwidth is that of one host reading from others over all of its network
    /// cards
    /// @param ranks_per_host G, at least 1; ranks are numbered host by host
    /// @throws InvalidArgument naming the argument that is out of range
    CommunicationModel(NetworkLevel inside, NetworkLevel between, std::size_t ranks_per_host,
                       CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring);

    /// @brief Returns the seconds that reduce-scatters and all-gathers take one after another.
    /// O(1).
    /// @param world W; at most the ranks of one host, or a multiple of them
    /// @param term its bytes are (W - 1) / W of each bucket
    /// @throws InvalidArgument if `world` is 0 or leaves a host with fewer ranks
    [[nodiscard]] double collective_seconds(std::size_t world, CommunicationTerm term) const;

    /// @brief Returns the seconds that all-reduces of a few integers take one after another. O(log
    /// W).
    /// @param term its bytes are the payload
    /// @throws InvalidArgument as `collective_seconds`
    [[nodiscard]] double control_seconds(std::size_t world, CommunicationTerm term) const;

    /// @brief Returns the seconds that the collectives of a step take.
    /// @param world the ranks over which states are cut: G, if `step` has replicas
    /// @throws InvalidArgument as `collective_seconds`
    [[nodiscard]] CommunicationSeconds predict(std::size_t world,
                                               StepCommunication const& step) const;

private:
    /// The distribution of W ranks over hosts.
    struct Spread {
        double on_host; ///< G
        double hosts;   ///< R
    };

    [[nodiscard]] Spread spread(std::size_t world) const;
    [[nodiscard]] double replica_seconds(std::size_t world, StepCommunication const& step) const;

    NetworkLevel _inside;
    NetworkLevel _between;
    std::size_t _ranks_per_host; ///< 0: all ranks are on one host
    CollectiveAlgorithm _algorithm;
};

/// @brief Elements read from other ranks, per kind of collective. Excludes control traffic: the
/// norm, the layout hash and the first broadcast.
struct Traffic {
    std::uint64_t reduce_scatter = 0; ///< gradients
    std::uint64_t all_gather = 0;     ///< parameters; in stage 0, sums of gradients
    std::uint64_t all_reduce = 0;     ///< gradients in stage 0, with one reduction per step

    /// @brief Returns the sum over all kinds.
    [[nodiscard]] constexpr std::uint64_t total() const noexcept {
        return reduce_scatter + all_gather + all_reduce;
    }
    friend constexpr bool operator==(Traffic, Traffic) = default;
};

/// @brief Returns the elements that one rank reads from the others in one optimizer step (ZeRO,
/// section 7).
///
/// Let P' be the trainable elements, padding included. Summed over ranks, stages 0 to 2 move
/// 2 P' (W - 1) elements: an all-reduce of gradients, or a reduce-scatter of gradients and an
/// all-gather of parameters. Each further reduction in an accumulation adds P' (W - 1). Stage 3
/// gathers a unit each time it is acquired, and no parameters at the end of the step. If the shards
/// are equal, each rank reads 1 / W of the sum.
/// @param micro_steps micro-steps accumulated in the step
/// @param acquired_units the units acquired during the step, once per acquisition, the same in
/// every micro-step (stage 3 only)
/// @param gather the options of the stage. Persistent buckets are gathered once a step, and buckets
/// that are kept until their next acquisition are not gathered for it. The formula holds from the
/// second step on, as long as `max_live_elements` leaves room for what is kept.
/// @param in_tree whether gradients are reduced by `TreeReduction`: stage 0 then never all-reduces
/// @throws InvalidArgument if there is no such rank
Traffic step_traffic_of_rank(FlatLayout const& layout, std::size_t rank, int stage,
                             ReductionSchedule schedule, std::size_t micro_steps,
                             std::span<std::size_t const> acquired_units,
                             GatherOptions const& gather = {}, bool in_tree = false);

/// @brief Returns the elements that one rank reads from other replicas in one optimizer step of an
/// engine on `Groups`: the all-reduce of its extents of gradients, 2 P' (R - 1) / (G R) if all
/// shares are equal. `step_traffic_of_rank` counts what it reads inside its group.
///
/// Where sums are sent in chunks of `wire_bytes`, some of the elements move to the count of
/// another replica; the sum over the replicas stays.
/// @param layout of the group, for its G ranks
/// @param replica this rank's number among those with the same extents, below `replicas`
/// @throws InvalidArgument if there is no such rank or replica
std::uint64_t replica_traffic_of_rank(FlatLayout const& layout, std::size_t rank,
                                      std::size_t replica, std::size_t replicas);

/// @brief The traffic of one rank of an engine on `Groups<C, Secondary>`.
struct SecondaryTraffic {
    Traffic everyone;            ///< from all ranks over which states are cut
    std::uint64_t secondary = 0; ///< from the ranks that share a copy: all-gathers
};

/// @brief Returns the elements of `step_traffic_of_rank` in stage 3 on `Groups<C, Secondary>`. The
/// first gather of a bucket in a step reads from all ranks, P' (W - 1) / W elements of P', and each
/// later one from the k ranks that share a copy, P' (k - 1) / k, if all shares are equal.
/// @param secondary_ranks k; k consecutive ranks share a copy
/// @throws InvalidArgument if there is no such rank, or k is 1, W, or does not divide W
SecondaryTraffic step_traffic_with_secondary(FlatLayout const& layout, std::size_t rank,
                                             std::size_t secondary_ranks,
                                             ReductionSchedule schedule, std::size_t micro_steps,
                                             std::span<std::size_t const> acquired_units,
                                             GatherOptions const& gather = {});

/// @brief Returns the sum of `step_traffic_of_rank` over all ranks.
Traffic step_traffic(FlatLayout const& layout, int stage, ReductionSchedule schedule,
                     std::size_t micro_steps, std::span<std::size_t const> acquired_units,
                     GatherOptions const& gather = {}, bool in_tree = false);

/// @brief The traffic of one rank on the two levels of a `Hierarchical` communicator.
struct LevelTraffic {
    Traffic inside;  ///< from its group
    Traffic between; ///< from other groups. In a tree the elements of `reduce_scatter` are floats
};

/// @brief Returns the elements of `step_traffic_of_rank` on each of two levels. An all-reduce is a
/// reduce-scatter and an all-gather.
/// @param inner_ranks G, the ranks of the inner level, from 2 to W / 2
/// @throws InvalidArgument if there is no such rank or level
LevelTraffic step_traffic_of_levels(FlatLayout const& layout, std::size_t rank,
                                    std::size_t inner_ranks, int stage, ReductionSchedule schedule,
                                    std::size_t micro_steps,
                                    std::span<std::size_t const> acquired_units,
                                    GatherOptions const& gather = {});

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/plan/communication_model.ipp"
#endif
