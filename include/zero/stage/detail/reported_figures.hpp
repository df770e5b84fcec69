#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"
#include "../../ops/host_device.hpp"
#include "../../ops/norm.hpp"
#include "step_state.hpp"

#include <cstddef>
#include <cstdint>

/// The integers of the figures that `ReportOptions` ask for, and the commands on them. The commands
/// run on the host and on devices.
namespace ZERO_NAMESPACE::detail {

/// @brief Where the figures of a step lie in the memory of the backend. Null without an option.
///
/// The ranks sum `exchanged`: the sums of the inspection of all gradients, the number of zeros, and
/// the sums of each group. The minima of `StepIntegers` follow, and under
/// `UnusedParameters::leave` one for each parameter: 0 if a rank had a gradient of it, otherwise 1.
struct ReportedFigures {
    static constexpr std::size_t sums = ops::Inspection::count; ///< integers of one inspection

    std::int64_t* exchanged = nullptr;
    ops::NormSum* groups = nullptr; ///< sums of the groups on this rank; null unless measured
    double* norms = nullptr;        ///< norms of the groups, for each report that is kept; null
                                    ///< without `group_norms`
    std::size_t group_count = 0;    ///< 0 unless groups are measured: `group_norms`, or a group is
                                    ///< left out of clipping
    bool leaves_out = false;        ///< a group is left out of clipping

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

    /// @brief The address of one group's sums.
    [[nodiscard]] ZERO_HOST_DEVICE constexpr std::int64_t* of(std::size_t group) const noexcept {
        return exchanged + sums + 1 + group * sums;
    }
};

/// @brief Resets the sums to which the passes over the gradients add.
struct ClearFigures {
    ReportedFigures figures;
    ZERO_HOST_DEVICE void operator()() const {
        *figures.zeros() = 0;
        for (std::size_t group = 0; group < figures.group_count; ++group) {
            figures.groups[group] = {};
        }
    }
};

/// @brief Merges the groups into the inspection of all gradients, and writes the integers that the
/// ranks reduce.
template <class Config>
struct PackFigures {
    StepState<Config>* state;
    ReportedFigures figures;
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

} // namespace ZERO_NAMESPACE::detail
