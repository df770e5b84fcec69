#pragma once

#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/detail/partition/shape.hpp"
#include "../../../layout/gradient_source.hpp"
#include "../state/gather_checks.hpp"
#include "compared_options.hpp"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Describes a parameter, or its absence. @param types parameter types by index
[[gnu::cold]] inline std::string describe_parameter(FlatLayout const& layout, std::size_t index,
                                                    std::span<DType const> types) {
    if (index >= layout.parameters().size()) {
        return text({"nothing (it has ", layout.parameters().size(), " parameters)"});
    }
    auto const& spec = layout.parameter(index);
    std::string units;
    for (std::size_t const unit : spec.units) {
        units += text({(units.empty() ? "" : ","), unit});
    }
    std::string const rows = spec.rows == 0 ? "" : text({" in ", spec.rows, " rows"});
    std::string const shape =
        spec.shape.empty() ? "" : " in shape " + shape_text(spec.shape).substr(0, 60);
    return text({"'", spec.name.substr(0, 80), "' (", spec.elements, " elements of ",
                 name_of(types[spec.type]), rows, shape, ", units ", units.substr(0, 40),
                 ", group ", spec.group,
                 spec.counts_on == CountsOn::every_model_rank ? "" : ", counts on the first",
                 (spec.trainable ? ", trainable)" : ", frozen)")});
}

ZERO_COLD_INLINE std::string name_differences(List<ComparedOption> const& options,
                                              std::span<std::uint64_t const> first,
                                              std::span<std::uint64_t const> other) {
    std::string names;
    bool is_adopted = false;
    for (std::size_t option = 0; option < options.size(); ++option) {
        is_adopted = is_adopted
                     || (options[option].name == std::string_view("storage")
                         && first[option] == Hash().add(Storage::adopted).value());
        if (first[option] != other[option]) {
            names += text({(names.empty() ? "'" : ", '"), options[option].name, "'"});
            if (options[option].is_value) {
                names += text({" (", first[option], " and ", other[option], ")"});
            }
        }
    }
    if (!names.empty()) {
        return names;
    }
    return is_adopted ? "'bucketer' or where parameters lie in 'adopted_block'"
                      : "'bucketer' or the partitioner";
}

/// Returns the next number of an engine of this process, or of a layout that one makes.
ZERO_COLD_INLINE std::uint64_t next_engine() noexcept {
    static std::atomic<std::uint64_t> engines{0};
    return ++engines;
}

ZERO_COLD_INLINE void require_agreement(FlatLayout& layout, std::span<DType const> types,
                                        List<ComparedOption> const& options, GatherValues gather,
                                        char const* call) {
    std::vector<std::uint64_t> own{layout.parameters().size(), layout.hash()};
    for (ComparedOption const& option : options) {
        own.push_back(option.hash);
    }
    own.push_back(2 * next_engine() + (has_gradient_block(layout) ? 1 : 0));
    std::vector<std::uint64_t> heads;
    gather(own, call, heads);
    std::size_t most = 0;
    std::uint64_t is_block = 1; // on every rank: an allocator may place gradients so by chance
    auto const head = [&](std::size_t rank) {
        return as_span(heads).subspan(rank * own.size(), own.size());
    };
    layout.set_number(heads[own.size() - 1] / 2);
    for (std::size_t begin = 0; begin < heads.size(); begin += own.size()) {
        is_block = smaller(is_block, std::exchange(heads[begin + own.size() - 1], 0) % 2);
        most = larger(most, static_cast<std::size_t>(heads[begin]));
    }
    if (is_block == 0) {
        layout.separate_gradients();
    }
    std::size_t const other = first_difference(heads, own.size()).rank;
    if (other == 0) {
        return;
    }
    std::vector<std::uint64_t> hashes(most, 0);
    for (std::size_t index = 0; index < layout.parameters().size(); ++index) {
        hashes[index] = layout.parameter_hash(index);
    }
    std::vector<std::uint64_t> all;
    gather(hashes, "parameter hashes", all);
    std::size_t first = 0;
    while (first < most && all[first] == all[other * most + first]) {
        ++first;
    }
    if (first == most) {
        throw_error<LayoutMismatch>(
            {"zero: rank 0 and rank ", other, " have different options or policies: ",
             name_differences(options, head(0).subspan(2), head(other).subspan(2)),
             "; give all ranks the same."});
    }
    std::string const text = describe_parameter(layout, first, types);
    std::vector<std::uint64_t> padded(32);
    std::size_t const bytes = padded.size() * sizeof(padded[0]);
    std::memcpy(padded.data(), text.data(), smaller(text.size(), bytes - 1));
    std::vector<std::uint64_t> texts;
    gather(padded, "parameter names", texts);
    auto const* const characters = reinterpret_cast<char const*>(texts.data());
    throw_error<LayoutMismatch>({"zero: the ranks registered different models; parameter number ",
                                 first, " is ", characters, " on rank 0 and ",
                                 characters + other * bytes, " on rank ", other,
                                 "; register the same parameters in the same order, and give calls "
                                 "that change them the same, on "
                                 "every rank."});
}

ZERO_COLD_INLINE List<ComparedOption> ComparedSettings::hashes() const {
    auto const hash_of = [](auto value) { return Hash().add(value).value(); };
    Hash types;
    for (DType const type : parameters) {
        types.add(type);
    }
    Hash reduction = sent;
    reduction.add(schedule).add(kind).add(double{predivide}).add(wire_bytes).add(one_micro_step);
    Hash rebuild;
    rebuild.add(rebuilds_buckets).add(leases_until_rebuild);
    Hash norm_limit;
    norm_limit.add(double{skip_above_norm.limit.value_or(0.0F)})
        .add(double{skip_above_norm.factor.value_or(0.0F)})
        .add(skip_above_norm.window);
    Hash gathering;
    gathering.add(gather.prefetch_elements.has_value())
        .add(gather.prefetch_elements.value_or(0))
        .add(gather.persistence_threshold)
        .add(gather.max_persistent_elements)
        .add(gather.max_reuse_distance.has_value())
        .add(gather.max_reuse_distance.value_or(0))
        .add(gather.keep_after_forward)
        .add(gather.keep_until_update)
        .add(gather.max_live_elements)
        .add(gather.changed_order)
        .add(gather.own_communicator);
    return {{"stage", hash_of(stage)},
            {"parameters", types.value()},
            {"wire", codec},
            {"reduction", reduction.value()},
            {"storage", hash_of(storage)},
            {"gather", gathering.value()},
            {"extra_leases", hash_of(extra_leases)},
            {"rebuild_buckets", rebuild.value()},
            {"unused_parameters", hash_of(unused_parameters)},
            {"skip_above_norm", norm_limit.value()},
            {"non_finite", hash_of(non_finite)},
            {"skip_limit", hash_of(skip_limit)},
            {"report", Hash().add(report.zero_gradients).add(report.group_norms).value()},
            {"gradient_clipping", hash_of(double{gradient_clipping})},
            {"loss_scaler", loss_scaler},
            {"master_weights", master_weights},
            {"optimizer", optimizer},
            {"groups", groups},
            {"communicator", communicator},
            {"is_deterministic", initialisation}};
}

} // namespace ZERO_NAMESPACE::detail
