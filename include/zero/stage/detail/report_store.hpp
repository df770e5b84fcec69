#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../report_options.hpp"
#include "optimizer_shard.hpp"
#include "reported_figures.hpp"
#include "step_state.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Owns the memory of the figures that `ReportOptions` and `UnusedParameters::leave` ask
/// for, and enqueues the passes that measure them. Without an option it allocates and enqueues
/// nothing. `StepControl` owns it.
template <class Config>
class ReportStore {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;

    /// @param leaves_out whether a group is left out of clipping, which needs the norms of groups
    /// @param parameters how many have a minimum of their own; 0 unless unused ones are left
    [[gnu::cold]] ReportStore(ReportOptions const& options, bool leaves_out, std::size_t groups,
                              std::size_t parameters, MemoryResource& memory)
        : _options(options), _leaves_out(leaves_out),
          _groups(memory, group_count(groups), BufferKind::control),
          _exchanged(memory,
                     is_any() || parameters != 0
                         ? ReportedFigures::size_for(group_count(groups), parameters)
                         : 0,
                     BufferKind::control),
          _norms(memory, options.group_norms ? groups * StepState<Config>::reports_kept : 0,
                 BufferKind::control) {}

    /// @brief Returns whether any figure is measured.
    [[nodiscard]] bool is_any() const noexcept { return _options.is_any() || _leaves_out; }

    /// @brief Returns whether the ranks reduce the integers of `figures`, in place of those of
    /// `StepState`.
    [[nodiscard]] bool is_exchanged() const noexcept { return _exchanged.size() != 0; }

    [[nodiscard]] ReportedFigures figures() const noexcept {
        return {_exchanged.data(), _groups.data(), _norms.data(), _groups.size(), _leaves_out};
    }

    /// @brief Enqueues the inspection of this rank's gradients, and writes the integers that the
    /// ranks then reduce.
    /// @param is_inspected false: without a figure that needs it, there is no inspection
    void measure(Queue queue, OptimizerShard<Config> const& shard, StepState<Config>* state,
                 bool is_inspected) const {
        ReportedFigures const all = figures();
        Backend::run(queue, ClearFigures{all});
        if (_groups.size() != 0) {
            shard.add_to_group_norms(all.groups);
        } else if (is_inspected) {
            shard.inspect(&state->integers.inspection);
        }
        if (_options.zero_gradients) {
            shard.count_zeros(all.zeros());
        }
        Backend::run(queue, PackFigures<Config>{state, all});
    }

    /// @brief Returns the norms of a report that is kept. Does not wait.
    [[nodiscard]] std::vector<double> norms_of(std::uint64_t serial) const {
        std::vector<double> norms;
        std::size_t const kept = serial % StepState<Config>::reports_kept;
        std::size_t const groups = _options.group_norms ? _groups.size() : 0;
        for (std::size_t group = 0; group < groups; ++group) {
            norms.push_back(Backend::load(_norms.data() + kept * _groups.size() + group));
        }
        return norms;
    }

    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _groups.size_bytes() + _exchanged.size_bytes() + _norms.size_bytes();
    }

private:
    [[nodiscard]] std::size_t group_count(std::size_t groups) const noexcept {
        return _options.group_norms || _leaves_out ? groups : 0;
    }

    ReportOptions _options;
    bool _leaves_out;
    Buffer<ops::NormSum> _groups;    ///< sums of the groups on this rank
    Buffer<std::int64_t> _exchanged; ///< integers that the ranks reduce
    Buffer<double> _norms;           ///< norms of all groups, for each report that is kept
};

} // namespace ZERO_NAMESPACE::detail
