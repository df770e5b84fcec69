#pragma once

#include "../../../backend/slices.hpp"
#include "../../../backend/update_decision.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/convert.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/piece.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../owned_slice.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/step_state.hpp"
#include "../common/stores_by_type.hpp"
#include "../gradients/gradient_scheduler.hpp"
#include "../gradients/gradient_store.hpp"
#include "../memory/offloaded_states.hpp"
#include "../parameters/parameter_scheduler.hpp"
#include "../parameters/parameter_store.hpp"
#include "master_weight_store.hpp"
#include "optimizer_state_store.hpp"
#include "written_weights.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `visit(Piece)` for each slice of a bucket that a rank updates.
template <class Config, class Visitor>
[[gnu::cold]] void for_updated_slices(FlatLayout const& layout, std::size_t bucket,
                                      std::size_t rank, StageRow const& row, Visitor const& visit) {
    if (OptimizerStateStore<Config>::is_scaled && !row.shards_optimizer()) {
        // Blocks of states begin where they do in the other stages.
        layout.for_slices_of_all_ranks(bucket, visit);
    } else {
        layout.for_slices(bucket, updated_range(layout, bucket, rank, row), visit);
    }
}

/// @brief The arguments of an OptimizerStore: the memory to which its tables point.
template <class Config, class Types>
struct OptimizerContext : TypeContext<Config> {
    ParameterStore<Config, Types> const* parameters;
    GradientStore<Config, Types> const* gradients;
    float* scratch; ///< that of `make_update_scratch`
};

/// @brief Owns the master weights and optimizer states that this rank updates, for one parameter
/// type, and the tables of slices that inspection and update walk.
///
/// In every stage the norm covers only this rank's extents, so every element counts once over all
/// ranks.
template <class Config, class Types>
class OptimizerStore {
public:
    using A = typename Types::Accumulation;
    using Optimizer = typename Config::Optimizer;
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Masters = MasterWeightStore<Config, Types>;
    using States = OptimizerStateStore<Config>;
    using Slice = UpdateSlice<A, typename Masters::Pointers, typename States::Pointers>;

    [[gnu::cold]] explicit OptimizerStore(OptimizerContext<Config, Types> const& context)
        : _queue(context.queue), _master(context), _states(context), _first_slice{0},
          _offload(context), _drain(context.queue) {
        FlatLayout const& layout = *context.layout;
        std::size_t const rank = context.shard_rank();
        bool const measures_groups =
            context.options->report.group_norms || context.options->leaves_out_groups();
        List<Slice> slices;
        List<InspectSlice<A>> inspected;
        List<NormSlice<A>> grouped;
        List<InspectSlice<A>> left_out;
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            if (layout.bucket(bucket).type == context.type) {
                Range const own = layout.extent(bucket, rank);
                auto const add = [&](Piece const& piece) {
                    slices.push_back(make_slice(context, bucket, piece));
                };
                if constexpr (is_offloaded) { // in chunks
                    auto const& plan = context.offload.states->plan();
                    for (std::size_t chunk = plan.first_chunk(bucket);
                         chunk < plan.end_chunk(bucket); ++chunk) {
                        for (Piece const& piece : plan.slices(plan.chunks()[chunk])) {
                            add(piece);
                            _offload.chunks.push_back(chunk);
                        }
                    }
                } else {
                    for_updated_slices<Config>(layout, bucket, rank, context.row, add);
                }
                layout.for_slices(bucket, own, [&](Piece const& piece) {
                    InspectSlice<A> const slice{
                        context.gradients->reduced(bucket, piece.bucket_begin), piece.elements,
                        static_cast<std::int64_t>(layout.first_element(piece.parameter)
                                                  + piece.parameter_begin)};
                    if (!context.counted->counts(piece.parameter)) {
                        left_out.push_back(slice);
                        return;
                    }
                    inspected.push_back(slice);
                    if (measures_groups) {
                        grouped.push_back({slice, layout.parameter(piece.parameter).group});
                    }
                });
            }
            _first_slice.push_back(slices.size());
        }
        _master.complete(*context.memory);
        find_tiles(as_span(slices), context.options->update_tile_elements);
        _slices = UpdateTable(_queue, *context.memory, std::move(slices));
        if constexpr (updates_on_host<Config>) {
            _on_host = {context, _slices.slices(), _first_slice};
        } else if constexpr (delays_update<Config>) {
            _delayed = {context, _slices.slices(), _first_slice};
        }
        _counted = inspected.size();
        _left_out = left_out.size();
        for (auto const& slice : left_out) {
            inspected.push_back(slice);
        }
        _inspected = InspectTable(_queue, *context.memory, std::move(inspected));
        if (measures_groups) {
            _grouped = GroupTable(_queue, *context.memory, std::move(grouped));
        }
    }

    /// @brief Sets the master weights to the current parameters.
    void copy_parameters_to_master() {
        if constexpr (Masters::is_by_chunk) {
            for_chunks([&](Range slices) { _master.take_over(table_of(slices)); });
        } else {
            _master.take_over(_slices.slices());
        }
    }

    /// @brief Sets master weights and states to their initial values.
    void set_initial() {
        if constexpr (is_offloaded) {
            for_chunks(
                [&](Range slices) {
                    if constexpr (Config::Offload::offloads(BufferKind::optimizer_state)) {
                        _states.set_initial(table_of(slices));
                    }
                    if constexpr (Masters::is_by_chunk) {
                        _master.take_over(table_of(slices));
                    }
                },
                true);
        }
        if constexpr (!Masters::is_by_chunk) {
            _master.take_over(_slices.slices());
        }
    }

    /// @brief Adds this rank's extents of all buckets to an inspection.
    void inspect(ops::Inspection* result) const {
        Backend::inspect(_queue, _inspected.range(0, _counted), result);
    }

    /// @brief Adds what `inspect` leaves out: replicas that another model rank counts.
    void inspect_left_out(ops::Inspection* result) const {
        Backend::inspect(_queue, _inspected.range(_counted, _left_out), result);
    }

    /// @brief Adds this rank's extents of all buckets to the norms of their groups
    /// (`ReportOptions::group_norms`, or a group that is left out of clipping).
    void add_to_group_norms(ops::NormSum* norms) const {
        Backend::add_to_norms(_queue, _grouped.all(), NormKind::l2, norms);
    }

    /// @brief Adds to `count` the number of zeros in this rank's extents of all buckets.
    void count_zeros(std::int64_t* count) const {
        Backend::count_zeros(_queue, _inspected.range(0, _counted), count);
    }

    /// @brief Updates this rank's slices of one bucket.
    /// @param groups the rows that slices name, as `StepControl::rows`
    void update(std::size_t bucket, GroupState<Optimizer> const* groups,
                UpdateDecision const* decision) const {
        std::size_t const first = _first_slice[bucket];
        if constexpr (updates_on_host<Config>) {
            _on_host.update(bucket, groups, decision);
        } else if constexpr (is_offloaded) {
            update_chunks(bucket, _queue, _slices, groups, decision);
        } else {
            Backend::template update<Optimizer>(
                _queue, _slices.range(first, _first_slice[bucket + 1] - first), groups, decision);
        }
    }

    /// @name Updates that run during the next step (`DelayedUpdate`)
    /// @{

    /// @brief Copies what the updates of this step read.
    void begin_updates([[maybe_unused]] GroupState<Optimizer> const* groups,
                       [[maybe_unused]] UpdateDecision const* decision) const {
        if constexpr (updates_on_host<Config>) {
            _on_host.begin(groups, decision); // and updates
        } else if constexpr (delays_update<Config>) {
            _delayed.begin(groups, decision);
        }
    }

    /// @brief Begins the update of one bucket. They come in descending order.
    void begin_update([[maybe_unused]] std::size_t bucket) const {
        if constexpr (delays_update<Config> && !updates_on_host<Config>) {
            update_chunks(bucket, _offload.states->update_queue(), _delayed.slices(),
                          _delayed.rows(), _delayed.decision());
            _delayed.end(bucket);
        }
    }

    /// @brief Writes the updated parameters of one bucket. They come in descending order.
    void finish_update([[maybe_unused]] std::size_t bucket) const {
        if constexpr (updates_on_host<Config>) {
            _on_host.finish(bucket);
        } else if constexpr (delays_update<Config>) {
            _delayed.finish(bucket, *_offload.states);
        }
    }

    /// @brief Waits for the updates that were begun, in a broken engine.
    /// @param is_pending whether to write the updated parameters, those of this rank alone
    void finish_alone([[maybe_unused]] bool is_pending) const {
        if constexpr (updates_on_host<Config>) {
            for (std::size_t bucket = _first_slice.size() - 1; is_pending && bucket-- > 0;) {
                _on_host.finish(bucket);
            }
            _on_host.wait();
            Backend::synchronise(Backend::record(_queue));
        } else if constexpr (delays_update<Config>) {
            _delayed.finish_alone(is_pending);
        }
    }
    /// @}

    /// @brief Updates all slices of this rank, by one command for each tile
    /// (`update_tile_elements`).
    void update_all(GroupState<Optimizer> const* groups, UpdateDecision const* decision) const {
        for (std::size_t tile = 0; tile + 1 < _tiles.size(); ++tile) {
            Backend::template update<Optimizer>(
                _queue, _slices.range(_tiles[tile], _tiles[tile + 1] - _tiles[tile]), groups,
                decision);
        }
    }

    /// @brief Calls `update(SliceWithGradient)` for every slice, then rounds the master weights to
    /// the parameters.
    /// @param factor_of returns the factor of a group's gradients
    /// @param number number of this update, from 1
    /// @param numbers the same for each parameter, 0 if it is left as it is; empty: `number`
    template <class Update, class FactorOf>
    void update_by(Update& update, FactorOf const& factor_of, double learning_rate,
                   std::uint64_t number, std::vector<std::uint64_t> const& numbers) const {
        static_assert(
            Types::master_form != MasterForm::split,
            "zero: a caller-defined update cannot write master weights that are stored in "
            "parts; use zero::MasterWeights<float> instead of SplitMasterWeights.");
        static_assert(
            Types::master_form != MasterForm::stochastic,
            "zero: a caller-defined update rounds what it writes, so StochasticRounding would "
            "be ignored; use zero::NoMasterWeights and ops::round_stochastically.");
        for_chunks([&](Range chunk) {
            for (std::size_t index = chunk.begin; index < chunk.end; ++index) {
                Slice const& slice = _slices.slices()[index];
                Origin const& origin = _origins[index];
                std::uint64_t const own = numbers.empty() ? number : numbers[origin.parameter];
                if (own != 0) {
                    update(SliceWithGradient<Config, Types>{owned_slice<UpdatedValue<Types>>(index),
                                                            {slice.gradient, slice.elements},
                                                            factor_of(origin.group),
                                                            learning_rate,
                                                            origin.group,
                                                            own});
                }
            }
            round_masters(chunk);
        });
    }

    /// @brief Makes the slices name parameters instead of groups. No pending command may use them.
    [[gnu::cold]] void count_by_parameter(MemoryResource& memory) {
        List<Slice> slices(as_span(_slices.slices()));
        for (std::size_t index = 0; index < slices.size(); ++index) {
            slices[index].group = _origins[index].parameter;
        }
        if constexpr (updates_on_host<Config>) {
            _on_host.count_by_parameter(slices);
        } else if constexpr (delays_update<Config>) {
            _delayed.count_by_parameter(slices, memory);
        }
        _slices = UpdateTable(_queue, memory, std::move(slices));
    }

    /// @brief Calls `visit(OwnedSlice)` for every slice. The host must be able to use the memory if
    /// the visitor does; what it writes is noted there.
    template <class Visitor>
    void visit_slices(Visitor& visit) {
        for_chunks([&](Range chunk) {
            for (std::size_t index = chunk.begin; index < chunk.end; ++index) {
                auto owned = owned_slice(index);
                if constexpr (notes_writes) {
                    auto const [values, masters] = std::pair(owned.values, owned.master);
                    _written.watch(index, values, masters, [&] { visit(owned); });
                } else {
                    visit(owned);
                }
            }
        });
    }

    /// @brief Rounds copied master weights to the parameters. A value that a visitor wrote replaces
    /// its master weight first. The queue must be drained.
    void publish_masters() {
        for_chunks([&](Range chunk) {
            if constexpr (notes_writes) {
                _written.take_over_values(chunk);
            }
            round_masters(chunk);
        });
        if constexpr (notes_writes) {
            _written.forget();
        }
    }

    /// @brief Rounds the copied master weights that a visitor wrote. Waits if there are any.
    void round_written_masters() {
        if constexpr (notes_writes) {
            if (!_written.is_empty()) {
                Backend::synchronise(Backend::record(_queue));
                for_chunks([&](Range chunk) { _written.round_masters(chunk); });
                _written.forget();
            }
        }
    }

    /// @brief Rounds copied master weights to the parameters. @param chunk of `for_chunks`
    void round_masters([[maybe_unused]] Range chunk) const {
        if constexpr (Types::has_master) {
            _master.round(table_of(chunk));
        }
    }

    /// @brief Rounds the copied master weights of one bucket to the parameters.
    void round_bucket([[maybe_unused]] std::size_t bucket) const {
        if constexpr (Types::has_master && !Masters::is_by_chunk) {
            std::size_t const first = _first_slice[bucket];
            _master.round_some(first, _first_slice[bucket + 1] - first);
        }
    }

    /// @brief Rounds all copied master weights, and forgets what visitors wrote.
    void round_all() {
        for_chunks([&](Range chunk) { round_masters(chunk); });
        forget_writes();
    }

    /// @brief Drops the notes of weights that visitors wrote and no call has rounded yet. Call it
    /// where an update or a load writes all of them.
    void forget_writes() noexcept {
        if constexpr (notes_writes) {
            _written.forget();
        }
    }

    [[nodiscard]] std::size_t slices() const noexcept { return _slices.slices().size(); }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const noexcept {
        return _slices.size_bytes() + _inspected.size_bytes() + _grouped.size_bytes()
               + _master.table_bytes();
    }

    /// @brief Empty unless `updates_on_host`.
    [[nodiscard]] auto const& on_host() const noexcept { return _on_host; }

    /// @brief Empty unless the update of a host is delayed.
    [[nodiscard]] auto const& delayed() const noexcept { return _delayed; }

    /// @brief A slice of the table in the form that a caller may read and change.
    template <class Value = typename Types::Parameter>
    [[nodiscard]] OwnedSlice<Config, Types, Value> owned_slice(std::size_t index) const {
        Slice const& slice = _slices.slices()[index];
        OwnedSlice<Config, Types, Value> owned;
        owned.parameter = _origins[index].parameter;
        owned.begin = _origins[index].parameter_begin;
        Masters::show(slice.weights(), slice.elements, owned);
        States::show(slice.all_states(), slice.elements, owned);
        return owned;
    }

    /// @brief Returns the address of memory of a slice for `StateAccess`.
    /// @param data its address in `owned_slice`
    [[nodiscard]] void* held_address([[maybe_unused]] std::size_t index, void* data) const {
        if constexpr (is_offloaded) {
            return _offload.states->held_address(_offload.chunks[index], data);
        } else {
            return data;
        }
    }

private:
    /// The position of a slice in the model.
    struct Origin {
        std::size_t parameter;
        std::size_t parameter_begin;
        std::size_t group;
    };

    static constexpr bool is_offloaded = Config::Offload::is_any;
    /// Whether the two weights of an element can differ, and the host can see which was written.
    static constexpr bool notes_writes =
        Types::master_form == MasterForm::copied && !requires { requires Backend::is_device; };

    using UpdateTable = typename Backend::template SliceTable<Slice>;
    using InspectTable = typename Backend::template SliceTable<InspectSlice<A>>;
    using GroupTable = typename Backend::template SliceTable<NormSlice<A>>;

    [[nodiscard]] typename UpdateTable::Range table_of(Range slices) const noexcept {
        return _slices.range(slices.begin, slices.end - slices.begin);
    }

    /// Enqueues the update of a bucket's chunks. A template, because without chunks it has no
    /// meaning. @param slices those of this store, or copies
    template <class Table>
    void update_chunks(std::size_t bucket, Queue queue, Table const& slices,
                       GroupState<Optimizer> const* groups, UpdateDecision const* decision) const {
        auto& states = *_offload.states;
        for (std::size_t chunk = states.plan().first_chunk(bucket);
             chunk < states.plan().end_chunk(bucket); ++chunk) {
            Range const own = slices_of(chunk);
            auto const enqueue = [&] {
                Backend::template update<Optimizer>(
                    queue, slices.range(own.begin, own.end - own.begin), groups, decision);
            };
            states.update(chunk, queue, enqueue, &decision->skip);
        }
    }

    /// Calls `use(slices)` while the states of these slices are in memory: once for all slices, or
    /// for each chunk; then it waits. @param is_new whether the states need not be read
    template <class Use>
    void for_chunks(Use const& use, [[maybe_unused]] bool is_new = false) const {
        if constexpr (is_offloaded) {
            _offload.states->visit(_offload.type, _queue, is_new,
                                   [&](std::size_t chunk) { use(slices_of(chunk)); });
        } else {
            use(Range{0, slices()});
        }
    }

    /// The slices of a chunk, which belong to one bucket.
    [[nodiscard]] Range slices_of(std::size_t chunk) const {
        auto const& plan = _offload.states->plan();
        auto const& own = plan.chunks()[chunk];
        std::size_t const first =
            _first_slice[own.bucket]
            + (own.first_slice - plan.chunks()[plan.first_chunk(own.bucket)].first_slice);
        return {first, first + own.slices};
    }

    [[nodiscard]] Slice make_slice(OptimizerContext<Config, Types> const& context,
                                   std::size_t bucket, Piece const& piece) {
        Slice slice;
        slice.gradient = context.gradients->reduced(bucket, piece.bucket_begin);
        static_cast<typename Masters::Pointers&>(slice) =
            _master.place(bucket, piece, context.parameters->slice(bucket, piece));
        static_cast<typename States::Pointers&>(slice) = _states.place(bucket, piece);
        slice.elements = piece.elements;
        std::size_t const group = context.layout->parameter(piece.parameter).group;
        slice.group = context.counts_by_parameter ? piece.parameter : group;
        slice.rows = context.layout->parameter(piece.parameter).rows;
        slice.scratch = context.scratch;
        _origins.push_back({piece.parameter, piece.parameter_begin, group});
        return slice;
    }

    /// Finds the tiles of `update_all`: consecutive slices of at most `most` elements together, or
    /// one larger slice. With `most` 0 there is one tile. Slices are not cut, because some
    /// optimizers need whole tensors.
    [[gnu::cold]] void find_tiles(std::span<Slice const> slices, std::size_t most) {
        _tiles.push_back(0);
        std::size_t elements = 0;
        for (std::size_t index = 0; index < slices.size(); ++index) {
            if (most != 0 && elements != 0 && elements + slices[index].elements > most) {
                _tiles.push_back(index);
                elements = 0;
            }
            elements += slices[index].elements;
        }
        _tiles.push_back(slices.size());
    }

    Queue _queue;
    Masters _master;
    WrittenWeights<typename Types::Parameter, typename Types::Master> _written;
    States _states;
    UpdateTable _slices;
    List<Origin> _origins;
    InspectTable _inspected;
    std::size_t _counted = 0;  ///< inspected slices that count
    std::size_t _left_out = 0; ///< and those that follow them, which another model rank counts
    GroupTable
        _grouped; ///< the inspected slices with their groups; empty unless groups are measured
    std::vector<std::size_t> _first_slice; ///< per bucket: index of its first slice; then the total
    std::vector<std::size_t> _tiles; ///< first slice of each tile of `update_all`; then the total
    [[no_unique_address]] OffloadedSlices<Config> _offload;
    [[no_unique_address]] mutable HostUpdate<Config, Types, Slice> _on_host;
    [[no_unique_address]] mutable DelayedSlices<Config, Types, Slice> _delayed;
    Drain<Backend> _drain;
};

/// @brief Allocates the scratch memory that the updates of this rank share: the maximum over its
/// parameters, because an optimizer of whole parameters updates them one by one, except for those
/// that a device updates together, which need norms alone. Empty for other optimizers, and where
/// the host of a device updates, whose threads have scratch of their own.
template <class Config>
[[gnu::cold]] Buffer<float> make_update_scratch(EngineContext<Config> const& context) {
    using Optimizer = typename Config::Optimizer;
    using Backend = typename Config::Backend;
    std::size_t most = 0;
    [[maybe_unused]] std::size_t together = 0; // parameters without scratch memory of their own
    [[maybe_unused]] std::size_t most_norms = 0;
    if constexpr (Optimizer::whole_tensor && !updates_on_host<Config>) {
        FlatLayout const& layout = *context.layout;
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            layout.for_slices(
                bucket, updated_range(layout, bucket, context.shard_rank(), context.row),
                [&](Piece const& piece) {
                    auto const& spec = layout.parameter(piece.parameter);
                    std::size_t const floats = Optimizer::scratch_floats(
                        spec.rows, spec.rows == 0 ? spec.elements : spec.elements / spec.rows);
                    std::size_t norms = 0;
                    if constexpr (requires { Backend::is_device; }) {
                        norms = Backend::template norm_floats<Optimizer>(spec.elements, spec.rows);
                    }
                    together += floats == 0 ? 1 : 0;
                    most_norms = larger(most_norms, norms);
                    most = larger(most, larger(floats + norms, together * most_norms));
                });
        }
    }
    Buffer<float> scratch(*context.memory, most, BufferKind::scratch);
    if (context.options->poison) {
        Backend::fill(context.queue, scratch.data(), scratch.size(),
                      std::numeric_limits<float>::quiet_NaN());
    }
    return scratch;
}

/// @brief Makes the shard of master weights and optimizer states that this rank updates.
/// @param scratch that of `make_update_scratch`; must outlive the result
template <class Config>
[[gnu::cold]] StoresByType<Config, OptimizerStore>
make_optimizer_stores(EngineContext<Config> const& context,
                      ParameterScheduler<Config> const& parameters,
                      GradientScheduler<Config> const& gradients, Buffer<float> const& scratch) {
    return {*context.layout, [&]<class Types>(std::size_t type) {
                return OptimizerContext<Config, Types>{{context, type},
                                                       &parameters.template store<Types>(),
                                                       &gradients.template store<Types>(),
                                                       scratch.data()};
            }};
}

/// @brief Bytes per element of each state of one parameter type, for the memory plan.
template <class Config, class Types>
[[nodiscard]] constexpr ElementSizes element_sizes_of() noexcept {
    return {sizeof(typename Types::Parameter),
            sizeof(typename Types::Gradient),
            sizeof(typename Types::Communication),
            sizeof(typename Types::Accumulation),
            MasterWeightStore<Config, Types>::bytes,
            OptimizerStateStore<Config>::bytes,
            MasterWeightStore<Config, Types>::bytes_per_block,
            OptimizerStateStore<Config>::bytes_per_block};
}

} // namespace ZERO_NAMESPACE::detail
