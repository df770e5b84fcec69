#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/detail/partition/order_by.hpp"
#include "../state/gather_checks.hpp"
#include "model_ranks.hpp"
#include "require_agreement.ipp"

#include <cstring>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void require_no_replicas(FlatLayout const& layout, std::size_t rank) {
    for (ParameterSpec const& parameter : layout.parameters()) {
        if (parameter.counts_on != CountsOn::every_model_rank) {
            throw_error<InvalidArgument>(
                {"zero: 'counts_on' of parameter '", parameter.name, "' on rank ", rank,
                 " needs ranks that hold the other parts of the model; name "
                 "zero::Groups<Communicator, zero::ModelParallel> in the stage, or leave it out."});
        }
    }
}

ZERO_COLD_INLINE std::uint32_t compare_over_model(List<ComparedOption> const& options,
                                                  GatherValues gather) {
    // Parts of a model may be stored and gathered in ways of their own.
    constexpr std::string_view own_choices[] = {"storage", "gather", "extra_leases",
                                                "rebuild_buckets", "is_deterministic"};
    List<ComparedOption> compared;
    std::vector<std::uint64_t> own;
    for (ComparedOption const& option : options) {
        bool is_compared = true;
        for (std::string_view const name : own_choices) {
            is_compared = is_compared && name != option.name;
        }
        if (is_compared) {
            compared.push_back(option);
            own.push_back(option.hash);
        }
    }
    own.push_back(next_engine());
    std::vector<std::uint64_t> all;
    gather(own, "options of model ranks", all);
    std::size_t const count = own.size();
    std::uint64_t const engine = all[count - 1];
    for (std::size_t last = count - 1; last < all.size(); last += count) {
        all[last] = engine;
    }
    if (std::size_t const rank = first_difference(all, count).rank; rank != 0) {
        throw_error<LayoutMismatch>({"zero: model rank 0 and model rank ", rank,
                                     " have different options: ",
                                     name_differences(compared, as_span(all).first(count),
                                                      as_span(all).subspan(rank * count, count)),
                                     "; give all parts of the model the same."});
    }
    return static_cast<std::uint32_t>(engine);
}

ZERO_COLD_INLINE void require_used_groups(FlatLayout const& layout, std::size_t groups,
                                          GatherValues gather) {
    if (groups == 0) {
        return;
    }
    std::vector<std::uint64_t> used(groups, 0);
    for (ParameterSpec const& parameter : layout.parameters()) {
        used[parameter.group] = 1;
    }
    std::vector<std::uint64_t> all;
    gather(used, "groups of model ranks", all);
    for (std::size_t group = 0; group < groups; ++group) {
        std::uint64_t ranks = 0;
        for (std::size_t at = group; at < all.size(); at += groups) {
            ranks += all[at];
        }
        if (ranks == 0) {
            throw_error<InvalidArgument>(
                {"zero: options.groups has ", groups,
                 " entries, but no model rank has a parameter in group ", group,
                 ", so its options would be ignored; set the group of a parameter, or leave the "
                 "entry out."});
        }
    }
}

ZERO_COLD_INLINE std::uint64_t hash_of_values(std::string_view bytes) noexcept {
    Hash hash;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, smaller(sizeof(word), bytes.size() - at));
        hash.add(word);
    }
    return hash.value();
}

ZERO_COLD_INLINE void compare_replicas(FlatLayout const& layout,
                                       std::vector<std::uint64_t> const& own, GatherValues gather) {
    NamedRows const rows(own, 2, "values of replicas", gather);
    constexpr std::size_t text_words = 16;
    std::size_t first = 0;
    std::size_t other = 0;                   // 0: there is no difference
    std::uint64_t const* compared = nullptr; // the row of the first rank with the name
    std::uint64_t name = 0;
    std::size_t first_of_name = 0;
    rows.each([&](std::size_t rank, std::uint64_t const* row) {
        if (compared == nullptr || compared[0] != row[0]) {
            first_of_name = rank;
            compared = row;
        } else if (compared[1] != row[1] && other == 0) {
            first = first_of_name;
            other = rank;
            name = row[0];
        }
    });
    if (other == 0) {
        return;
    }
    std::vector<std::uint64_t> text(text_words);
    for (std::size_t index = 0; index < layout.parameters().size(); ++index) {
        if (name_hash(layout, index) == name) {
            std::string const& own_name = layout.parameter(index).name;
            std::memcpy(text.data(), own_name.data(),
                        smaller(own_name.size(), text_words * sizeof(text[0]) - 1));
        }
    }
    std::vector<std::uint64_t> texts;
    gather(text, "name of a replica", texts);
    throw_error<InvalidArgument>(
        {"zero: the replicas of parameter '",
         reinterpret_cast<char const*>(texts.data() + first * text_words),
         "' differ between model ranks ", first, " and ", other,
         "; give them equal initial values, and in every step the same gradient, such as the sum "
         "over the ranks that hold them."});
}

ZERO_COLD_INLINE std::vector<char> find_counted(FlatLayout const& layout, std::size_t model_rank,
                                                std::size_t model_size, ModelRules const& rules,
                                                GatherValues gather) {
    constexpr std::size_t words = 5;
    std::vector<std::uint64_t> own;
    std::size_t const count = layout.parameters().size();
    for (std::size_t index = 0; index < count; ++index) {
        ParameterSpec const& spec = layout.parameter(index);
        own.insert(own.end(), {name_hash(layout, index), std::uint64_t{spec.elements},
                               std::uint64_t{layout.first_element(index)},
                               static_cast<std::uint64_t>(spec.counts_on),
                               Hash()
                                   .add(spec.group)
                                   .add(spec.trainable)
                                   .add(spec.type)
                                   .add(spec.rows)
                                   .add(spec.update.has_value())
                                   .add(spec.update.value_or(Update::elements))
                                   .value()});
    }
    NamedRows const rows(own, words, "parameters of model ranks", gather);
    std::vector<char> counted(count, 1);
    for (std::size_t index = 0; index < count; ++index) {
        ParameterSpec const& spec = layout.parameter(index);
        bool const is_replica = spec.counts_on == CountsOn::first_model_rank;
        auto const refuse = [&](std::size_t other, std::string const& why) {
            throw_error<LayoutMismatch>({"zero: parameter '", spec.name, "' of model ranks ",
                                         model_rank, " and ", other, ": ", why});
        };
        std::size_t holders = 0;
        std::size_t first = model_rank;
        rows.each_of(own[index * words], [&](std::size_t rank, std::uint64_t const* row) {
            ++holders;
            first = smaller(first, rank);
            if (rank == model_rank) {
                return;
            }
            std::size_t const cut = rules.ranks_of_expert;
            if (cut != 0 && rank / cut != model_rank / cut) {
                refuse(rank, "experts of both have this name; put the number of the expert in the "
                             "model into it, as in 'experts.3.up'.");
            }
            if (row[3] != own[index * words + 3]) {
                refuse(rank, "it is a replica on one of them only; give both the same counts_on, "
                             "or another name where it is another parameter.");
            }
            if (is_replica && row[1] != spec.elements) {
                refuse(rank, text({"replicas of ", spec.elements, " and ", row[1],
                                   " elements; replicas are equal, and parts count on "
                                   "every_model_rank."}));
            }
            if (is_replica && row[4] != own[index * words + 4]) {
                refuse(rank, "one is frozen, in another parameter group, of another type, or a "
                             "matrix; replicas are updated alike.");
            }
            if (is_replica && rules.depends_on_position && row[2] != layout.first_element(index)) {
                refuse(rank, "its elements have other numbers on each, and this composition rounds "
                             "or scales by them, so that replicas would differ; register replicas "
                             "first and in the same order, or use master weights and states of "
                             "float.");
            }
            if (!is_replica && rules.updates_whole_tensors && spec.trainable) {
                refuse(rank, "this optimizer updates whole parameters, and the norm of a part is "
                             "another one; use an optimizer of elements, or another name where it "
                             "is another parameter.");
            }
        });
        if (is_replica && rules.leaves_unused && model_size > 1) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name, "' on model rank ", model_rank,
                 " is a replica, and UnusedParameters::leave would leave it in one part and update "
                 "it in another; use UnusedParameters::zero."});
        }
        if (is_replica && holders == 1 && model_size > 1) {
            throw_error<InvalidArgument>(
                {"zero: parameter '", spec.name,
                 "' counts on the first model rank, and only model rank ", model_rank,
                 " registered this name; give its replicas the same, or count it on "
                 "every_model_rank."});
        }
        counted[index] = !is_replica || first == model_rank ? 1 : 0;
    }
    return counted;
}

} // namespace ZERO_NAMESPACE::detail
