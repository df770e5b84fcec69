#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../communication_model.hpp"

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
    for (double reached = 1; reached < ranks; reached *= 2) {
        rounds += 1;
    }
    return rounds;
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
    return {static_cast<double>(_ranks_per_host), static_cast<double>(world / _ranks_per_host)};
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
           + detail::message_seconds(_between, calls * (hosts - 1), whole * (hosts - 1) / hosts);
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

ZERO_COLD_INLINE CommunicationSeconds
CommunicationModel::predict(std::size_t world, StepCommunication const& step) const {
    return {.gathers = collective_seconds(world, step.gathers),
            .reductions = collective_seconds(world, step.reductions),
            .publishes = collective_seconds(world, step.publishes),
            .control = control_seconds(world, step.control)};
}

} // namespace ZERO_NAMESPACE
