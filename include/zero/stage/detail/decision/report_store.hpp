#pragma once

#include "../../../core/buffer.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/host_device.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "../../stage_options.hpp"
#include "../common/step_state.hpp"
#include "../common/stores_by_type.hpp"
#include "../optimizer/optimizer_store.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// The integers of the figures that `ReportOptions` ask for, and the commands on them. The commands
/// run on the host and on devices.
namespace ZERO_NAMESPACE::detail {

/// @brief Where the figures of a step are in the memory of the backend. Null without an option.
///
/// The ranks sum `exchanged`: the sums of the inspection of all gradients, the number of zeros, and
/// the sums of each group. The minima of `StepIntegers` follow, and under
/// `UnusedParameters::leave` one for each parameter: 0 if a rank had a gradient of it, otherwise 1.
struct ReportedFigures {
    static constexpr std::size_t sums = ops::Inspection::count; ///< integers of one inspection

    std::int64_t* exchanged = nullptr;
    double* norms = nullptr;     ///< norms of the groups, for each report that is kept; null
                                 ///< without `group_norms`. The host reads them
    std::size_t group_count = 0; ///< 0 unless groups are measured: `group_norms`, or a group is
                                 ///< left out of clipping
    bool leaves_out = false;     ///< a group is left out of clipping

    /// @brief Returns how many integers are summed.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr std::size_t summed() const noexcept {
        return summed_for(group_count);
    }
    [[nodiscard]] static ZERO_HOST_DEVICE constexpr std::size_t
    summed_for(std::size_t groups) noexcept {
        return sums + 1 + groups * sums;
    }

    /// @brief Returns the length of `exchanged`. @param parameters 0 unless unused ones are left
    [[nodiscard]] static constexpr std::size_t size_for(std::size_t groups,
                                                        std::size_t parameters) noexcept {
        return summed_for(groups) + StepIntegers::minima(true) + parameters;
    }

    /// @brief The address of the minima of the parameters.
    [[nodiscard]] constexpr std::int64_t* unused() const noexcept {
        return exchanged == nullptr ? nullptr : exchanged + summed() + StepIntegers::minima(true);
    }

    /// @brief The address of the number of zeros.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr std::int64_t* zeros() const noexcept {
        return exchanged + sums;
    }

    [[nodiscard]] ZERO_HOST_DEVICE constexpr std::int64_t* of(std::size_t group) const noexcept {
        return exchanged + sums + 1 + group * sums;
    }
};

/// @brief The same, with the sums of the groups on this rank, which the decision does not read.
struct MeasuredFigures : ReportedFigures {
    ops::NormSum* groups = nullptr; ///< null unless measured
};

/// @brief Resets the sums to which the passes over the gradients add.
struct ClearFigures {
    MeasuredFigures figures;
    ZERO_HOST_DEVICE void operator()() const {
        *figures.zeros() = 0;
        for (std::size_t group = 0; group < figures.group_count; ++group) {
            figures.groups[group] = {};
        }
    }
};

/// @brief Merges the groups into the inspection of all gradients, and writes the integers that the
/// ranks reduce.
template <class Step>
struct PackFigures {
    StepState<Step>* state;
    MeasuredFigures figures;
    ZERO_HOST_DEVICE void operator()() const {
        ops::Inspection& all = state->integers.inspection;
        for (std::size_t group = 0; group < figures.group_count; ++group) {
            ops::Inspection const& part = figures.groups[group].exact;
            all.merge(part);
            for (std::size_t i = 0; i < ReportedFigures::sums; ++i) {
                figures.of(group)[i] = part.sums[i];
            }
        }
        for (std::size_t i = 0; i < ReportedFigures::sums; ++i) {
            figures.exchanged[i] = all.sums[i];
        }
        std::int64_t* const minima = figures.exchanged + figures.summed();
        minima[0] = all.first_non_finite;
        for (std::size_t i = 0; i < OrderAgreement::count; ++i) {
            minima[1 + i] = state->integers.agreement.numbers[i];
        }
    }
};

/// @brief Copies back those reduced integers that a step without figures also reduces.
struct UnpackFigures {
    ReportedFigures figures;
    ZERO_HOST_DEVICE void operator()(StepIntegers& to) const {
        for (std::size_t i = 0; i < ReportedFigures::sums; ++i) {
            to.inspection.sums[i] = figures.exchanged[i];
        }
        std::int64_t const* const minima = figures.exchanged + figures.summed();
        to.inspection.first_non_finite = minima[0];
        for (std::size_t i = 0; i < OrderAgreement::count; ++i) {
            to.agreement.numbers[i] = minima[1 + i];
        }
    }
};

/// @brief Owns the reports of the last steps, and the memory of the figures that `ReportOptions`
/// and `UnusedParameters::leave` ask for, and enqueues the passes that measure them. Without an
/// option it enqueues nothing. `StepControl` owns it.
///
/// Reports lie where the host reads them: on a device in page-locked memory, which the decision
/// writes directly. So reading one needs the event of its step and no copy, which would wait for
/// whatever was enqueued since.
template <class Config>
class ReportStore {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;

    /// @param leaves_out whether a group is left out of clipping, which needs the norms of groups
    /// @param counts_all whether each of the parameters has a minimum of its own, since unused
    /// ones are left
    [[gnu::cold]] ReportStore(ReportOptions const& options, bool leaves_out, std::size_t groups,
                              bool counts_all, std::size_t parameters, MemoryResource& memory)
        : _options(options), _leaves_out(leaves_out),
          _reports(read_by_host(memory), 1, BufferKind::control),
          _groups(memory, group_count(groups), BufferKind::control),
          _exchanged(memory,
                     is_any() || counts_all ? ReportedFigures::size_for(group_count(groups),
                                                                        counts_all ? parameters : 0)
                                            : 0,
                     BufferKind::control),
          _norms(read_by_host(memory), options.group_norms ? groups * StepReports::kept : 0,
                 BufferKind::control) {
        StepReports const none{}; // a temporary crashes g++ 12 on what nvcc makes of it
        *_reports.data() = none;
    }

    /// @brief Makes room for the minima of another number of parameters. No pending command may use
    /// the figures.
    [[gnu::cold]] void resize(std::size_t parameters, MemoryResource& memory) {
        _exchanged = Buffer<std::int64_t>(
            memory, ReportedFigures::size_for(_groups.size(), parameters), BufferKind::control);
    }

    /// @brief Returns the reports, which kernels write and the host reads after an event.
    [[nodiscard]] StepReports* reports() const noexcept { return _reports.data(); }

    /// @brief Returns whether any figure is measured.
    [[nodiscard]] bool is_any() const noexcept { return _options.is_any() || _leaves_out; }

    /// @brief Returns whether the ranks reduce the integers of `figures`, in place of those of
    /// `StepState`.
    [[nodiscard]] bool is_exchanged() const noexcept { return _exchanged.size() != 0; }

    [[nodiscard]] ReportedFigures figures() const noexcept {
        return {_exchanged.data(), _norms.data(), _groups.size(), _leaves_out};
    }

    /// @brief Enqueues the inspection of this rank's gradients, and writes the integers that the
    /// ranks then reduce.
    /// @param is_inspected false: without a figure that needs it, there is no inspection
    /// @param is_counted false: another rank counts the same gradients
    void measure(Queue queue, StoresByType<Config, OptimizerStore> const& shard,
                 StepState<StepOf<Config>>* state, bool is_inspected, bool is_counted) const {
        MeasuredFigures const all{figures(), _groups.data()};
        Backend::run(queue, ClearFigures{all});
        if (_groups.size() != 0 && is_counted) {
            shard.each([&](auto const& store) { store.add_to_group_norms(all.groups); });
        } else if (is_inspected && is_counted) {
            shard.each([&](auto const& store) { store.inspect(&state->integers.inspection); });
        }
        if (_options.zero_gradients && is_counted) {
            shard.each([&](auto const& store) { store.count_zeros(all.zeros()); });
        }
        Backend::run(queue, PackFigures<StepOf<Config>>{state, all});
    }

    /// @brief Returns the norms of a report that is kept. Does not wait.
    [[nodiscard]] std::vector<double> norms_of(std::uint64_t serial) const {
        std::vector<double> norms;
        std::size_t const kept = serial % StepReports::kept;
        std::size_t const groups = _options.group_norms ? _groups.size() : 0;
        for (std::size_t group = 0; group < groups; ++group) {
            norms.push_back(_norms.data()[kept * _groups.size() + group]);
        }
        return norms;
    }

    /// @brief Returns the bytes of the engine's memory.
    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _groups.size_bytes() + _exchanged.size_bytes()
               + (has_staging ? 0 : _reports.size_bytes() + _norms.size_bytes());
    }

private:
    static constexpr bool has_staging = requires { Backend::staging_memory(); };

    static MemoryResource& read_by_host(MemoryResource& memory) {
        if constexpr (has_staging) {
            return Backend::staging_memory();
        } else {
            return memory;
        }
    }

    [[nodiscard]] std::size_t group_count(std::size_t groups) const noexcept {
        return _options.group_norms || _leaves_out ? groups : 0;
    }

    ReportOptions _options;
    bool _leaves_out;
    Buffer<StepReports> _reports;
    Buffer<ops::NormSum> _groups;    ///< sums of the groups on this rank
    Buffer<std::int64_t> _exchanged; ///< integers that the ranks reduce
    Buffer<double> _norms;           ///< beside `_reports`: norms of all groups, by report
};

} // namespace ZERO_NAMESPACE::detail
