#pragma once

#include "step_settings.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/hash.hpp"

#include <bit>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE StepSettings::StepSettings(FlatLayout const& layout, std::size_t listed_groups)
    : _group_count(listed_groups) {
    for (auto const& parameter : layout.parameters()) {
        _group_count = larger(_group_count, parameter.group + 1);
    }
    _group_count = larger<std::size_t>(_group_count, 1);
    _settings.resize(2 * _group_count + 1);
}

ZERO_COLD_INLINE void StepSettings::set_learning_rate_factor(std::size_t group,
                                                             double factor) noexcept {
    _settings[2 * group] = std::bit_cast<std::uint64_t>(factor);
}

ZERO_COLD_INLINE void StepSettings::set_hyper_parameters(std::size_t group,
                                                         std::uint64_t options_hash) noexcept {
    _settings[2 * group + 1] = options_hash;
}

ZERO_COLD_INLINE void StepSettings::set_loss_scale(float scale) noexcept {
    _settings[2 * _group_count] = std::bit_cast<std::uint32_t>(scale);
}

ZERO_COLD_INLINE std::uint64_t StepSettings::hash(std::uint64_t begun,
                                                  double learning_rate) const noexcept {
    Hash all;
    all.add(begun).add(learning_rate);
    for (std::uint64_t const setting : _settings) {
        all.add(setting);
    }
    return all.value();
}

} // namespace ZERO_NAMESPACE::detail
