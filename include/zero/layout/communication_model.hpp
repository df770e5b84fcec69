#pragma once

#include "../core/detail/namespace.hpp"
#include "network_level.hpp"
#include "step_communication.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

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
    double gathers = 0;    ///< parameters of acquired units (stage 3)
    double reductions = 0; ///< gradients
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
/// The formula of the ring holds for two or more ranks per host; with one rank there is no b. A few
/// integers are reduced by recursive doubling. On each level it takes as many messages as the
/// binary logarithm of the number of ranks, rounded up.
///
/// Collectives are counted one after another, as on one communication queue. The model knows
/// neither computation nor overlap: how much of the sum a step waits for depends on the trainer.
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

    /// @brief Returns the seconds that the collectives of a step take. @throws InvalidArgument as
    /// `collective_seconds`
    [[nodiscard]] CommunicationSeconds predict(std::size_t world,
                                               StepCommunication const& step) const;

private:
    /// The distribution of W ranks over hosts.
    struct Spread {
        double on_host; ///< G
        double hosts;   ///< R
    };

    [[nodiscard]] Spread spread(std::size_t world) const;

    NetworkLevel _inside;
    NetworkLevel _between;
    std::size_t _ranks_per_host; ///< 0: all ranks are on one host
    CollectiveAlgorithm _algorithm;
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/communication_model.ipp"
#endif
