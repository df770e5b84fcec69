#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/host_device.hpp"
#include "../common/step_state.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

/// The decision of a step for each parameter, as commands, which a device runs as well.
/// `UpdateCounts` enqueues them.
namespace ZERO_NAMESPACE::detail {

/// @brief The number of updates of one parameter, in backend memory, and its group.
struct UpdateCount {
    std::uint64_t missed = 0; ///< steps minus updates, modulo 2^64
    std::uint64_t group = 0;  ///< index of the parameter group
};

/// @brief Writes the minima of some parameters, as `ReportedFigures` describes them. The bits
/// travel in the command, so that a graph keeps them.
struct NoteUnused {
    static constexpr std::size_t words = 11;
    static constexpr std::size_t capacity = 64 * words; ///< parameters of one command

    std::int64_t* to;
    std::size_t count;         ///< parameters of this command
    std::uint64_t used[words]; ///< one bit for each: had a gradient on this rank
    ZERO_HOST_DEVICE void operator()() const { write(std::make_index_sequence<words>()); }

private:
    /// Constant indices: a kernel would copy an array that it indexes otherwise to local memory.
    template <std::size_t... Words>
    ZERO_HOST_DEVICE void write(std::index_sequence<Words...> /*unused*/) const {
        (write_word(used[Words], 64 * Words), ...);
    }

    ZERO_HOST_DEVICE void write_word(std::uint64_t bits, std::size_t begin) const {
        for (std::size_t i = begin; i < count && i < begin + 64; ++i) {
            to[i] = (bits >> (i - begin) & 1U) != 0 ? 0 : 1;
        }
    }
};

/// @brief The decision of a step for each parameter, after `DecideStep`: which ones are left as
/// they are, and the hyper-parameters of the others by their own number of updates.
template <class Config>
struct DecideParameters {
    using Optimizer = typename Config::Optimizer;

    StepState<Config> const* state;
    GroupState<Optimizer> const* groups;
    GroupState<Optimizer>* rows; ///< one for each parameter
    UpdateCount* counts;
    std::int64_t const* unused; ///< reduced minima of `NoteUnused`; null: no parameter is left
    std::size_t parameters;
    double learning_rate;

    ZERO_HOST_DEVICE void operator()() const {
        for (std::size_t parameter = 0; !state->decision.skip && parameter < parameters;
             ++parameter) {
            UpdateCount& count = counts[parameter];
            GroupState<Optimizer> const& group = groups[count.group];
            GroupState<Optimizer>& row = rows[parameter];
            row.factor = group.factor;
            row.is_left = unused != nullptr && unused[parameter] != 0;
            if (row.is_left) {
                ++count.missed;
            } else if (count.missed == 0) {
                row.hyper = group.hyper;
            } else {
                row.hyper = Optimizer::hyper(group.options,
                                             ops::mul(learning_rate, group.learning_rate_factor),
                                             state->step_count - count.missed);
            }
        }
    }
};

/// @brief Sets the updates of every parameter to the number of steps.
struct ClearMissed {
    UpdateCount* counts;
    std::size_t parameters;
    ZERO_HOST_DEVICE void operator()() const {
        for (std::size_t parameter = 0; parameter < parameters; ++parameter) {
            counts[parameter].missed = 0;
        }
    }
};

} // namespace ZERO_NAMESPACE::detail
