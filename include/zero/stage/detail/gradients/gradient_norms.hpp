#pragma once

#include "../../../backend/slices.hpp"
#include "../../../comm/communicator.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "../../stage_options.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/gather_on_host.hpp"
#include "../common/named_rows.hpp"
#include "../common/stores_by_type.hpp"
#include "gradient_scheduler.hpp"
#include "gradient_store.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Computes norms of the reduced gradients for `Engine::gradient_norms`.
///
/// In every stage each rank processes only its own extents, so an element counts once, however many
/// units use it and however many ranks store it; of several replicas one counts. Ranks exchange the
/// integers of exact sums. So equal gradients give the same bits in every stage, with every
/// partitioner and world size.
template <class Config>
class GradientNorms {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Communicator = typename Config::Communicator;

    [[gnu::cold]] GradientNorms(FlatLayout const& layout, std::size_t group_count, NormScope scope)
        : _layout(&layout), _scope(scope),
          _count(scope == NormScope::global   ? 1
                 : scope == NormScope::groups ? group_count
                                              : layout.parameters().size()) {}

    /// @brief Returns the norms times `factor`. Collective; waits and allocates.
    /// @param counted which parameters this rank counts
    [[nodiscard]] std::vector<double> measure(NormKind kind, double factor,
                                              CountedParameters<Config> const& counted,
                                              GradientScheduler<Config> const& reducer,
                                              Communicator& communicator, Queue queue,
                                              MemoryResource& memory) const {
        typename Config::template ForTypes<Slices> slices;
        std::vector<ops::NormSum> sums(_count);
        std::vector<std::int64_t> values;
        Buffer<ops::NormSum> found(memory, _count, BufferKind::control);
        Buffer<std::int64_t> exchanged(memory, _count * integers(kind), BufferKind::control);
        Drain<Backend> const drain(queue); // after everything that commands use, even on a throw
        wait_for_collectives(communicator, queue); // of the gradients; see `through_backend`
        Backend::copy_bytes(queue, found.data(), sums.data(), found.size_bytes());
        visit_all(slices, [&]<class Types>(Slices<Config, Types>& own) {
            if (counts_once(communicator)) {
                own.collect(*this, reducer.template store<Types>(), shard_rank_of(communicator),
                            counted);
            }
            own.table = {queue, memory, std::move(own.list)};
            Backend::add_to_norms(queue, own.table.all(), kind, found.data());
        });
        Backend::copy_bytes(queue, sums.data(), found.data(), found.size_bytes());
        wait_for_collectives(communicator, queue);
        for (ops::NormSum& sum : sums) {
            for (std::size_t integer = 0; integer < integers(kind); ++integer) {
                values.push_back(integers_of(kind, sum)[integer]);
            }
        }
        CollectiveTag const tag =
            engine_tag(*_layout, "gradient norms, kind and scope:",
                       static_cast<std::size_t>(kind) * 10 + static_cast<std::size_t>(_scope), "",
                       "", CollectivePurpose::decide);
        CollectiveTag over_model = tag;
        over_model.engine = counted.engine;
        compare_untagged(communicator, queue, memory, tag);
        if constexpr (ModelParallelCommunicator<Communicator>) {
            compare_untagged(communicator.model(), queue, memory, over_model);
        }
        Backend::copy_bytes(queue, exchanged.data(), values.data(), exchanged.size_bytes());
        auto const reduction =
            kind == NormKind::infinity ? IntegerReduction::min : IntegerReduction::sum;
        communicator.all_reduce_integers(exchanged.data(), exchanged.size(), reduction, queue, tag);
        wait_for_collectives(communicator, queue);
        if constexpr (ModelParallelCommunicator<Communicator>) {
            if (_scope != NormScope::parameters) {
                communicator.model().all_reduce_integers(exchanged.data(), exchanged.size(),
                                                         reduction, queue, over_model);
                wait_for_collectives(communicator, queue);
            }
        }
        Backend::copy_bytes(queue, values.data(), exchanged.data(), exchanged.size_bytes());
        wait_for_collectives(communicator, queue);
        if constexpr (ModelParallelCommunicator<Communicator>) {
            if (_scope == NormScope::parameters) {
                add_parts(values, kind,
                          gather_over(communicator.model(), queue, memory, counted.engine));
            }
        }
        std::vector<double> norms;
        for (std::size_t norm = 0; norm < _count; ++norm) {
            std::memcpy(integers_of(kind, sums[norm]), values.data() + norm * integers(kind),
                        integers(kind) * sizeof(std::int64_t));
            bool const is_later =
                _scope == NormScope::parameters && _layout->parameter(norm).tile.is_later();
            norms.push_back(is_later ? norms.back() : sums[norm].value(kind, factor));
        }
        return norms;
    }

private:
    /// The number of integers per norm that ranks reduce: digits and the count of non-finite
    /// elements, or the largest magnitude.
    static std::size_t integers(NormKind kind) noexcept {
        return kind == NormKind::infinity ? 1 : ops::Inspection::count;
    }
    static std::int64_t* integers_of(NormKind kind, ops::NormSum& sum) noexcept {
        return kind == NormKind::infinity ? &sum.negative_largest : sum.exact.sums;
    }

    /// Adds the integers of the parts of each parameter, which model ranks registered by one name.
    [[gnu::cold]] void add_parts(std::vector<std::int64_t>& values, NormKind kind,
                                 GatherValues gather) const {
        std::size_t const count = integers(kind);
        std::vector<std::uint64_t> own;
        for (std::size_t norm = 0; norm < _count; ++norm) {
            auto const& spec = _layout->parameter(norm);
            own.push_back(
                Hash()
                    .add(std::string_view(spec.tile.of.empty() ? spec.name : spec.tile.of))
                    .value()); // parts may have other tiles
            for (std::size_t integer = 0; integer < count; ++integer) {
                own.push_back(static_cast<std::uint64_t>(values[norm * count + integer]));
            }
        }
        NamedRows const rows(own, 1 + count, "gradient norms of parts", gather);
        for (std::size_t norm = 0; norm < _count; ++norm) {
            std::int64_t* const sums = values.data() + norm * count;
            for (std::size_t integer = 0; integer < count; ++integer) {
                sums[integer] = 0;
            }
            rows.each_of(own[norm * (1 + count)], [&](std::size_t, std::uint64_t const* row) {
                for (std::size_t integer = 0; integer < count; ++integer) {
                    auto const part = static_cast<std::int64_t>(row[1 + integer]);
                    sums[integer] = kind == NormKind::infinity ? smaller(sums[integer], part)
                                                               : sums[integer] + part;
                }
            });
        }
    }

    [[nodiscard]] std::size_t norm_of(std::size_t parameter) const {
        switch (_scope) {
        case NormScope::groups: return _layout->parameter(parameter).group;
        case NormScope::parameters:
            while (_layout->parameter(parameter).tile.is_later()) {
                --parameter; // the elements of all tiles are added to the first one
            }
            return parameter;
        case NormScope::global: break;
        }
        return 0;
    }

    /// The slices in this rank's extents of one parameter type.
    template <class, class Types>
    struct Slices {
        using Slice = NormSlice<typename Types::Accumulation>;
        List<Slice> list;
        typename Backend::template SliceTable<Slice> table;

        void collect(GradientNorms const& norms, GradientStore<Config, Types> const& gradients,
                     std::size_t rank, CountedParameters<Config> const& counted) {
            FlatLayout const& layout = *norms._layout;
            for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
                if (layout.bucket(bucket).type != gradients.type()) {
                    continue;
                }
                layout.for_slices(bucket, layout.extent(bucket, rank), [&](Piece const& piece) {
                    if (!counted.counts(piece.parameter)) {
                        return;
                    }
                    auto const first = static_cast<std::int64_t>(
                        layout.first_element(piece.parameter) + piece.parameter_begin);
                    list.push_back(
                        {{gradients.reduced(bucket, piece.bucket_begin), piece.elements, first},
                         norms.norm_of(piece.parameter)});
                });
            }
        }
    };

    FlatLayout const* _layout;
    NormScope _scope;
    std::size_t _count;
};

} // namespace ZERO_NAMESPACE::detail
