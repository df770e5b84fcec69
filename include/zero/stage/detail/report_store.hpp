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

    /// @param parameters how many have a minimum of their own; 0 unless unused ones are left
    [[gnu::cold]] ReportStore(ReportOptions const& options, std::size_t groups,
                              std::size_t parameters, MemoryResource& memory)
        : _options(options), _groups(memory, group_count(groups), BufferKind::control),
          _exchanged(memory,
                     options.is_any() || parameters != 0
                         ? ReportedFigures::size_for(group_count(groups), parameters)
                         : 0,
                     BufferKind::control),
          _norms(memory, group_count(groups) * StepState<Config>::reports_kept,
                 BufferKind::control) {}

    /// @brief Returns whether any figure is asked for.
    [[nodiscard]] bool is_any() const noexcept { return _options.is_any(); }

    /// @brief Returns whether the ranks reduce the integers of `figures`, in place of those of
    /// `StepState`.
    [[nodiscard]] bool is_exchanged() const noexcept { return _exchanged.size() != 0; }

    [[nodiscard]] ReportedFigures figures() const noexcept {
        return {_exchanged.data(), _groups.data(), _norms.data(), _groups.size()};
    }

    /// @brief Enqueues the inspection of this rank's gradients, and writes the integers that the
    /// ranks then reduce.
    /// @param is_inspected false: without a figure that needs it, there is no inspection
    void measure(Queue queue, OptimizerShard<Config> const& shard, StepState<Config>* state,
                 bool is_inspected) const {
        ReportedFigures const all = figures();
        Backend::run(queue, ClearFigures{all});
        if (_options.group_norms) {
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
        for (std::size_t group = 0; group < _groups.size(); ++group) {
            norms.push_back(Backend::load(_norms.data() + kept * _groups.size() + group));
        }
        return norms;
    }

    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _groups.size_bytes() + _exchanged.size_bytes() + _norms.size_bytes();
    }

private:
    [[nodiscard]] std::size_t group_count(std::size_t groups) const noexcept {
        return _options.group_norms ? groups : 0;
    }

    ReportOptions _options;
    Buffer<ops::NormSum> _groups;    ///< sums of the groups on this rank
    Buffer<std::int64_t> _exchanged; ///< integers that the ranks reduce
    Buffer<double> _norms;           ///< norms of all groups, for each report that is kept
};

} // namespace ZERO_NAMESPACE::detail
