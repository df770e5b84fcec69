#pragma once

// Construction, destruction and memory plan of an engine; included by engine.hpp.

#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/error.hpp"
#include "../../../host/threaded_queue.hpp"
#include "../../../layout/gradient_source.hpp"
#include "../../../layout/lease_plan.hpp"
#include "../../../layout/lease_share.hpp"
#include "../../../policy/gradient_reduction.hpp"
#include "../../engine.hpp"
#include "../gradients/gradient_store.hpp"
#include "../gradients/gradient_sum_store.hpp"
#include "../optimizer/optimizer_store.hpp"
#include "../parameters/parameter_store.hpp"
#include "../registration/make_stage_layout.hpp"
#include "../registration/model_ranks.hpp"
#include "../registration/validate_arguments.hpp"
#include "end_with_live_handles.hpp"

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE {

namespace detail {

/// Returns whether an engine gets queues with threads. It gets none if many ranks of this process
/// share few cores, the model runs on the calling thread, and the ranks meet there in any case: the
/// threads of two ranks would take the core in turns. A caller who gives a queue decides himself.
template <class Config>
[[gnu::cold]] bool has_cores_for_queues(typename Config::Communicator const& communicator,
                                        StageOptions<Config> const& options) {
    constexpr std::size_t most_ranks_of_core = 4; // with threads
    std::size_t const ranks = ranks_in_process(communicator);
    return ranks <= most_ranks_of_core || options.communication_queue
           || options.compute_queue != Config::Backend::default_compute_queue()
           || ranks <= most_ranks_of_core * host::available_cores();
}

/// Returns a queue for communication. On a host it has room for the commands of 2 micro-steps of
/// the model, or `default_capacity`: a loopback enqueues up to about 5 for each rank and bucket; in
/// groups also for each replica, and for all ranks when it decides. A small model has room for 240,
/// so that many of its micro-steps may run ahead. A full queue waits (docs/design/queues.md); with
/// room for 16 micro-steps no step was faster.
template <class Config, class Owned = typename Config::Backend::OwnedQueue>
[[gnu::cold]] std::unique_ptr<Owned>
own_queue(FlatLayout const& layout, typename Config::Communicator& communicator,
          MemoryResource& memory, StageOptions<Config> const& options) {
    if constexpr (std::is_constructible_v<Owned, std::size_t, MemoryResource&>) {
        constexpr std::size_t micro_steps = 2;
        constexpr std::size_t least = 240;
        constexpr std::size_t most = Owned::default_capacity;
        auto const of_collective = [](std::size_t members) { return 5 * members + 4; };
        std::size_t of_bucket = of_collective(layout.world());
        if constexpr (GroupedCommunicator<typename Config::Communicator>) {
            auto const replicas = static_cast<std::size_t>(communicator.replicas().size());
            of_bucket += replicas == 1 ? 0 : of_collective(replicas);
        }
        std::size_t const of_decision =
            of_collective(static_cast<std::size_t>(communicator.size()));
        bool const is_small = layout.buckets() < most / micro_steps / of_bucket;
        std::size_t const commands =
            is_small ? (layout.buckets() * of_bucket + of_decision) * micro_steps : most;
        std::size_t const capacity = larger(least, smaller(commands, most));
        if constexpr (std::is_same_v<Owned, host::WaitingQueue> && !Config::Offload::is_any) {
            if (!has_cores_for_queues<Config>(communicator, options)) { // offloads wait for files
                return std::make_unique<host::ThreadlessQueue>(capacity, memory);
            }
        }
        return std::make_unique<Owned>(capacity, memory);
    } else {
        return std::make_unique<Owned>();
    }
}

/// Whether gathers of parameters may have a communicator and a queue of their own.
template <class Config>
inline constexpr bool gathers_apart = SplittableCommunicator<ShardOf<typename Config::Communicator>>
                                      && !Config::Offload::offloads(BufferKind::parameters)
                                      && !lies_on_host<Config>(BufferKind::parameters);

/// Returns the communicator. It must be able to do what the options want.
/// @throws InvalidArgument with the remedy, before anything is allocated
template <class Config, class Communicator>
Communicator* checked_communicator(int number, Communicator& communicator,
                                   StageOptions<Config> const& options) {
    [[maybe_unused]] GradientReductionOptions const& reduction = options.reduction;
    if (!gathers_apart<Config> && options.gather.own_communicator && number == 3) {
        throw_error<InvalidArgument>(
            {"zero: gather.own_communicator on rank ", communicator.rank(), ": ",
             SplittableCommunicator<ShardOf<Communicator>>
                 ? "gathers of parameters that Offload keeps elsewhere need the order of one "
                   "queue; leave BufferKind::parameters out of Offload, or leave the option out."
                 : "this communicator has no 'split'; use one that has (Loopback, "
                   "mpi::Communicator, cuda::NcclCommunicator, Timed around one of them), or leave "
                   "the "
                   "option out."});
    }
    if constexpr (Config::adds_in_tree) {
        std::string_view const reason = reason_against_tree(communicator);
        if (!reason.empty()) {
            throw_error<InvalidArgument>({"zero: TreeReduction on rank ", communicator.rank(),
                                          ": this communicator cannot add in a tree: ", reason,
                                          ", or use zero::GradientReduction."});
        }
        ops::MicroBatchTree const tree{reduction.micro_batches, reduction.micro_batch_group,
                                       static_cast<std::size_t>(communicator.size())};
        if (tree.is_valid()) { // otherwise the layout maker says why not
            require_admissible_levels(tree, inadmissible_ranks_of(communicator, tree));
        }
    }
    return &communicator;
}

/// Returns what gathers of stage 3 have for themselves; null: nothing, as without the option, in
/// another stage, and where one rank gathers from itself. Collective.
template <class Config>
[[gnu::cold]] std::unique_ptr<OwnGathers<Config>> own_gathers(EngineContext<Config> const& all) {
    if constexpr (gathers_apart<Config>) {
        if (all.options->gather.own_communicator && all.row.shards_parameters()
            && all.layout->world() != 1) {
            return std::make_unique<OwnGathers<Config>>(
                shard_of(*all.communicator),
                own_queue<Config>(*all.layout, *all.communicator, *all.memory, *all.options));
        }
    }
    return nullptr;
}

} // namespace detail

// Not inlined: g++ 12 would assume that the values of empty optionals are read, and warn in the
// caller's code.
template <class Config>
[[gnu::noinline, gnu::cold]] Engine<Config>::Engine(int number, Communicator& communicator,
                                                    std::span<AnyParameter const> parameters,
                                                    Options const& options, LayoutMaker make_layout)
    : _number(number),
      _communicator(detail::checked_communicator<Config>(number, communicator, options)),
      _rank(static_cast<std::size_t>(communicator.rank())), _options(options),
      _blocks(detail::memory_for(communicator, options.memory)), _memory(&_blocks),
      _make_layout(make_layout),
      _layout(make_layout(number, detail::shard_size_of(communicator), parameters, options, {})),
      _ready_order(_layout.units(), options.rebuild_buckets != nullptr), _protocol(_layout, _rank),
      _schedule(Config::adds_in_tree
                    ? ReductionSchedule::every_micro_step
                    : options.reduction.schedule.value_or(default_schedule(number))),
      _offload(detail::make_offload<Config>(_layout, communicator, stage_row(number, _schedule),
                                            _options, *_memory)),
      _own_queue(options.communication_queue
                     ? nullptr
                     : detail::own_queue<Config>(_layout, communicator, *_memory, options)),
      _queue(options.communication_queue ? usable(*options.communication_queue)
                                         : Backend::handle(*_own_queue)),
      _compute(usable(options.compute_queue)),
      _control(_layout, communicator, _queue, _options, *_memory),
      _counted(
          detail::agree_over_ranks(_number, context(parameters), _layout, _control.group_count())),
      _parameters(context(parameters)), _gradients(context(parameters)),
      _update_scratch(detail::make_update_scratch(context(parameters))),
      _optimizer(detail::make_optimizer_stores(context(parameters), _parameters, _gradients,
                                               _update_scratch)),
      _waits_for_callers(uses_callers_memory(parameters, options)), _drain(_queue) {
    if constexpr (requires { Backend::require_arithmetic(_queue); }) {
        Backend::rethrow_failure(_compute); // also refuses a missing stream
        Backend::require_arithmetic(_queue);
    } else if constexpr (requires { Backend::require_arithmetic(); }) {
        Backend::require_arithmetic();
    }
    require_healthy();
    try {
        _control.set_engine(_layout.number(), _counted.engine);
        _parameters.set_initial(parameters);
        _optimizer.each([](auto& store) { store.set_initial(); });
        _parameters.gather_apart(detail::own_gathers(context(parameters)));
        if constexpr (detail::codes_weights<Config>) { // a pass reads what is decoded
            publish_all([](std::size_t /*bucket*/) {});
        }
        detail::wait_for_collectives(*_communicator, _queue);
        require_same_replicas();
    } catch (...) {
        fail();
    }
}

/// Whether `step` waits for commands that use memory of the caller.
template <class Config>
[[gnu::cold]] bool Engine<Config>::uses_callers_memory(std::span<AnyParameter const> parameters,
                                                       Options const& options) noexcept {
    bool is_used = options.storage != Storage::owned;
    for (AnyParameter const& parameter : parameters) {
        is_used = is_used || parameter.gradient != nullptr;
    }
    return is_host && !options.asynchronous && is_used;
}

template <class Config>
[[gnu::cold]] Engine<Config>::~Engine() {
    if (_protocol.handles() != 0 || _live_gradients != 0) {
        std::string const text =
            detail::live_handles_text(_protocol.handles(), _live_gradients, _rank);
        _communicator->abort(text, false); // peers in other processes would wait
        detail::end_with_live_handles(text);
    }
    if (_protocol.is_in_step()) {
        _communicator->abort(
            detail::text({_protocol.rank_text(), " destroyed its engine inside a step"}),
            std::uncaught_exceptions() > 0);
    }
    _protocol.park(nullptr); // its threads use the engine's memory
    if constexpr (Config::Offload::is_any) {
        if (_protocol.is_broken()) { // its states are read no more
            _offload->cancel();
        }
    }
    // Commands on the compute queue use weights and gradients of the engine.
    detail::drain<Backend>(_compute, _before_capture);
    if constexpr (Config::Offload::is_any) { // writes read the decision
        detail::drain<Backend>(_queue);
        _offload->settle();
    }
}

template <class Config>
[[gnu::cold]] auto Engine<Config>::context(std::span<AnyParameter const> parameters) const
    -> detail::EngineContext<Config> {
    StageRow row = stage_row(_number, _schedule);
    if (has_one_micro_step() && has_gradient_block(_layout)) {
        row.accumulation_buffer = row.reduced_gradients; // only the sums are kept
    }
    return {&_layout,
            _communicator,
            _queue,
            parameters,
            &_options,
            _memory,
            row,
            _schedule,
            has_one_micro_step(),
            predivide(),
            _ready_order.is_wanted() ? _options.leases_until_rebuild : 0,
            _control.counts().is_any(),
            &_counted,
            detail::OffloadRef<Config>(_offload)};
}

template <class Config>
[[gnu::cold]] MemoryPlan Engine<Config>::memory_plan() const {
    MemoryPlan plan;
    std::size_t largest_bucket_bytes = 0;
    auto const all = context({});
    for (std::size_t type = 0; type < Config::types; ++type) {
        with_types(type, [&]<class Types>(Types) {
            using Sums = detail::GradientSumStore<Config, Types>;
            auto totals = all.totals(type, sizeof(typename Types::Communication));
            if (Sums::sends_only_pieces(all)) {
                totals.gradient_lease_elements -= copied_gradient_elements(_layout, type);
            }
            if (Sums::sums_in_leases(all, type)) {
                totals.gradient_lease_elements = 0;
            }
            largest_bucket_bytes =
                detail::larger(largest_bucket_bytes, totals.largest_bucket_elements
                                                         * sizeof(typename Types::Communication));
            MemoryPlan own = plan_memory(all.row, totals, element_sizes<Types>(), _options.storage,
                                         detail::has_wire<Types>(_schedule), 0);
            if (Sums::sums_in_block(all)) {
                own[BufferKind::gradients] = {
                    totals.trainable_content * sizeof(typename Types::Gradient), 0, true};
            }
            if constexpr (Config::adds_in_tree) {
                using Held = detail::HeldSumStore<Config, Types>;
                std::size_t const bytes = Held::slots(all) * sizeof(float);
                own[BufferKind::held_sums] = {
                    bytes * totals.own_trainable_content,
                    bytes * (totals.own_trainable_padded - totals.own_trainable_content), false};
            }
            if constexpr (SecondaryCommunicator<Communicator>) {
                own[BufferKind::secondary_copies] =
                    detail::SecondaryCopyStore<Config, Types>::row(all, type);
            }
            if constexpr (detail::has_gradient_codec<Types>) {
                using Codes = detail::EncodedGradients<Config, Types>;
                own[BufferKind::wire] = Codes::row(all, type);
                own[BufferKind::gradient_errors] = Codes::Errors::row(_layout, type);
            }
            if constexpr (GroupedCommunicator<Communicator>) {
                own[BufferKind::wire].content_bytes +=
                    detail::ReplicaSumsOf<Config, Types>::buffer_bytes(all, type);
            }
            if constexpr (detail::has_weight_codec<Types>) {
                own[BufferKind::weight_codes] =
                    detail::WeightCodesOf<Config, Types, false>::row(all, type);
            }
            if constexpr (detail::has_frozen_codec<Types>) {
                using Codes = detail::WeightCodesOf<Config, Types, true>;
                MemoryRow& shards = own[BufferKind::parameters];
                MemoryRow const codes = Codes::kept_row(all, type);
                std::size_t const content =
                    totals.own_trainable_content * sizeof(typename Types::Parameter);
                std::size_t const padded =
                    totals.own_trainable_padded * sizeof(typename Types::Parameter);
                shards.content_bytes = content + codes.content_bytes;
                shards.padding_bytes = padded - content + codes.padding_bytes;
                own[BufferKind::weight_codes].content_bytes += Codes::row(all, type).bytes();
            }
            plan += own;
        });
    }
    plan[BufferKind::control].content_bytes = _control.size_bytes() + _gradients.table_bytes()
                                              + _optimizer.table_bytes()
                                              + _parameters.table_bytes();
    plan[BufferKind::communicator] = {
        detail::scratch_bytes_of(*_communicator, largest_bucket_bytes), 0, true};
    if constexpr (requires { _own_queue->size_bytes(); }) {
        plan[BufferKind::commands].content_bytes = _own_queue ? _own_queue->size_bytes() : 0;
    }
    _parameters.with_own_gathers([&](auto const& own) { own.add_to(plan); });
    plan[BufferKind::scratch].content_bytes = _update_scratch.size_bytes();
    if constexpr (Config::Offload::is_any) {
        _offload->add_to(plan);
        if constexpr (detail::delays_update<Config>) {
            _optimizer.each([&](auto const& store) {
                plan[BufferKind::staging].content_bytes += store.delayed().bytes();
            });
        }
    } else if constexpr (detail::has_states_on_host<Config>) {
        plan.is_on_host = true;
        for (BufferKind const kind : Config::Offload::kinds) {
            plan.tier_bytes += std::exchange(plan[kind], {}).bytes();
        }
        if constexpr (detail::updates_on_host<Config>) {
            _optimizer.each([&](auto const& store) { plan.tier_bytes += store.on_host().bytes(); });
        }
    }
    return plan;
}

/// Whether the sums of any parameter type replace its gradients.
template <class Config>
[[gnu::cold]] bool Engine<Config>::keeps_sums_in_place() const {
    auto const all = context({});
    bool is_any = false;
    for (std::size_t type = 0; type < Config::types; ++type) {
        with_types(type, [&]<class Types>(Types) {
            using Sums = detail::GradientSumStore<Config, Types>;
            is_any = is_any || Sums::sums_in_block(all) || Sums::sums_in_leases(all, type);
        });
    }
    return is_any;
}

template <class Config>
[[gnu::cold]] std::string Engine<Config>::describe_memory() const {
    std::string lines = to_string(memory_plan());
    auto const all = context({});
    for (std::size_t type = 0; type < Config::types; ++type) {
        with_types(type, [&]<class Types>(Types) {
            using Sums = detail::GradientSumStore<Config, Types>;
            std::string const leases = describe_leases(
                _layout, all.row, element_sizes<Types>(), _options.storage,
                spare_places(_options.extra_leases, all.further_leases), type, _options.gather,
                Sums::sums_in_leases(all, type), Sums::sends_only_pieces(all));
            if (Config::types > 1 && !leases.empty()) {
                lines += detail::text(
                    {name_of(dtype_of<typename Types::Parameter>()), " parameters:\n"});
            }
            lines += leases;
        });
    }
    return lines;
}

template <class Config>
[[gnu::cold]] std::vector<std::string> Engine<Config>::unused_options() const {
    constexpr bool has_tiles = !detail::updates_on_host<Config>;
    std::vector<std::string> unused = detail::unused_options(
        _number, _layout.world(), _options.gather, has_tiles ? _options.update_tile_elements : 0);
    if (!has_tiles && _options.update_tile_elements != 0) {
        unused.emplace_back("update_tile_elements (the host updates bucket by bucket)");
    }
    if (_options.gather.own_communicator && !stage_row(_number, _schedule).shards_parameters()) {
        unused.emplace_back("gather.own_communicator (stage 3 uses it)");
    }
    if (_options.reduction.one_micro_step && !keeps_sums_in_place()) {
        unused.emplace_back("reduction.one_micro_step (it saves memory where sums have the type of "
                            "the gradients, in stages 0 and 1, and with a single rank in every "
                            "stage)");
    }
    if (_options.reduction.wire_bytes != GradientReductionOptions{}.wire_bytes
        && memory_plan()[BufferKind::wire].content_bytes == 0) {
        unused.emplace_back("reduction.wire_bytes (gradients are sent from where they lie)");
    }
    if (_options.on_skip && !_control.may_skip()) {
        unused.emplace_back("on_skip (non_finite is NonFinite::step, so no step is skipped)");
    }
    std::vector<bool> groups;
    for (auto const& group : _options.groups) {
        groups.push_back(group.update == Update::matrix);
    }
    for (std::string& line : detail::unused_registrations(
             _layout, groups, MatrixOptimizer<typename Config::Optimizer>)) {
        unused.push_back(std::move(line));
    }
    if (_options.storage == Storage::adopted) {
        auto const block = _options.adopted_block;
        std::vector<std::size_t> offsets;
        for (std::size_t index = 0; index < _layout.parameters().size(); ++index) {
            offsets.push_back(_layout.parameter(index).elements == 0
                                  ? 0
                                  : static_cast<std::size_t>(static_cast<ParameterType const*>(
                                                                 registered_memory(index).data)
                                                             - block.data()));
        }
        std::string text = detail::uncovered_text(_layout, detail::as_span(offsets), block.size());
        if (!text.empty()) {
            unused.push_back(std::move(text));
        }
    }
    return unused;
}

} // namespace ZERO_NAMESPACE
