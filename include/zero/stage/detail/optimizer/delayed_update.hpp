#pragma once

#include "../../../backend/fence.hpp"
#include "../../../backend/slices.hpp"
#include "../../../backend/update_decision.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../common/drain.hpp"
#include "../common/engine_context.hpp"
#include "../common/step_state.hpp"
#include "../memory/offloaded_states.hpp"
#include "moved_slices.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The updates of one parameter type on a host that run during the next step, and all that
/// they read and write beside the states: copies of gradients, parameters, decision and rows of the
/// groups.
///
/// `begin` copies on the engine's queue; the updates run on `OffloadedStates::update_queue`, one
/// for all types; `finish` copies the parameters back. Two events order these: the updates wait for
/// the copies (`chunk_read`), and the copies back wait for the updates of their bucket
/// (`chunk_updated`). The next `begin` comes after all `finish`, so nothing else is ordered.
template <class Config, class Types, class Slice>
class DelayedSlices<Config, Types, Slice, true> {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;
    using Group = GroupState<typename Config::Optimizer>;
    using Table = typename Backend::template SliceTable<Slice>;

    DelayedSlices() = default;

    /// @param slices those of the engine, in the order of the buckets
    /// @param first_slice by bucket: index of its first slice; then the total
    [[gnu::cold]] DelayedSlices(TypeContext<Config> const& context, List<Slice> const& slices,
                                std::vector<std::size_t> const& first_slice)
        : _queue(context.queue), _parameters(context.layout->parameters().size()),
          _rows_used(context.counts_by_parameter ? _parameters : groups_of(context)) {
        std::size_t gradient_bytes = 0;
        std::size_t parameter_bytes = 0;
        for (Slice const& slice : slices) {
            gradient_bytes += slice.elements * sizeof(typename Types::Accumulation);
            parameter_bytes += slice.elements * sizeof(typename Types::Parameter);
        }
        gradient_bytes = whole_lines(gradient_bytes);
        parameter_bytes = whole_lines(parameter_bytes);
        std::size_t const row_bytes =
            whole_lines(larger(groups_of(context), _parameters) * sizeof(Group));
        _copies = std::make_unique<Copies>(*context.memory,
                                           gradient_bytes + parameter_bytes + row_bytes
                                               + whole_lines(sizeof(UpdateDecision)),
                                           context.offload.states->update_queue());
        Copies& copies = *_copies;
        std::byte* gradients = copies.memory.data();
        std::byte* parameters = gradients + gradient_bytes;
        copies.rows = parameters + parameter_bytes;
        copies.decision = copies.rows + row_bytes;
        copies.first.push_back(0);
        List<Slice> redirected(as_span(slices));
        for (std::size_t bucket = 0; bucket + 1 < first_slice.size(); ++bucket) {
            List<MovedRange> of_bucket;
            for (std::size_t index = first_slice[bucket]; index < first_slice[bucket + 1];
                 ++index) {
                Slice& slice = redirected[index];
                redirect(slice.gradient, slice.elements, gradients, copies.gradients);
                redirect_parameters<Types::master_form>(slice, parameters, of_bucket);
            }
            for (MovedRange const& range : of_bucket) {
                copies.parameters.push_back(range);
            }
            copies.first.push_back(copies.parameters.size());
        }
        _updated.resize(first_slice.size() - 1);
        _slices = Table(_queue, *context.memory, std::move(redirected));
    }

    /// @brief The slices whose gradients and parameters are the copies.
    [[nodiscard]] Table const& slices() const noexcept { return _slices; }

    /// @brief Bytes of the copies.
    [[nodiscard]] std::size_t bytes() const noexcept { return _copies->memory.size_bytes(); }

    /// @brief Where updates find the rows of the groups and the decision.
    [[nodiscard]] Group const* rows() const noexcept {
        return reinterpret_cast<Group const*>(_copies->rows);
    }
    [[nodiscard]] UpdateDecision const* decision() const noexcept {
        return reinterpret_cast<UpdateDecision const*>(_copies->decision);
    }

    /// @brief Enqueues the copies, for which the updates wait.
    /// @param rows, decision those of the step, written by commands on the engine's queue
    void begin(Group const* rows, UpdateDecision const* decision) {
        Backend::run(_queue, [copies = _copies.get(), used = _rows_used, rows, decision] {
            std::copy_n(reinterpret_cast<std::byte const*>(rows), used * sizeof(Group),
                        copies->rows);
            std::copy_n(reinterpret_cast<std::byte const*>(decision), sizeof(UpdateDecision),
                        copies->decision);
            for (List<MovedRange> const* const ranges : {&copies->gradients, &copies->parameters}) {
                for (MovedRange const& range : *ranges) {
                    std::copy_n(range.own, range.bytes, range.copy);
                }
            }
        });
        Backend::wait(_copies->updates, Backend::record(_queue), Fence::chunk_read);
    }

    /// @brief Call it when the updates of a bucket are enqueued.
    void end(std::size_t bucket) { _updated[bucket] = Backend::record(_copies->updates); }

    /// @brief Enqueues the copy of a bucket's parameters back. It fails where a read of states
    /// failed. @param states outlive the command
    void finish(std::size_t bucket, OffloadedStates<Config> const& states) {
        Copies const& copies = *_copies;
        Backend::wait(_queue, _updated[bucket], Fence::chunk_updated);
        Backend::run(_queue, [&states, &copies, bucket] {
            states.rethrow_failure();
            copies.write_back(copies.first[bucket], copies.first[bucket + 1]);
        });
    }

    /// @brief Waits for the updates that were begun, and may copy the parameters of this rank back
    /// on the host: in a broken engine, whose queue may skip commands.
    [[gnu::cold]] void finish_alone(bool copies_back) const {
        Backend::synchronise(Backend::record(_copies->updates));
        if (copies_back) {
            _copies->write_back(0, _copies->parameters.size());
        }
    }

    /// @brief Makes slices name parameters. No pending command may use them.
    /// @param slices the slices of the engine, which name parameters
    [[gnu::cold]] void count_by_parameter(List<Slice> const& slices, MemoryResource& memory) {
        List<Slice> own(as_span(_slices.slices()));
        for (std::size_t index = 0; index < own.size(); ++index) {
            own[index].group = slices[index].group;
        }
        _slices = Table(_queue, memory, std::move(own));
        _rows_used = _parameters;
    }

private:
    /// Outlives all commands that use it, also when its owner is assigned to.
    struct Copies {
        Buffer<std::byte> memory;
        std::byte* rows = nullptr;
        std::byte* decision = nullptr;
        List<MovedRange> gradients{};
        List<MovedRange> parameters{};
        std::vector<std::size_t> first{}; ///< by bucket: its first range of parameters; the total
        Queue updates;
        Copies(MemoryResource& resource, std::size_t bytes, Queue queue)
            : memory(resource, bytes, BufferKind::staging), updates(queue) {}
        Copies(Copies const&) = delete;
        Copies& operator=(Copies const&) = delete;
        ~Copies() { drain<Backend>(updates); }

        void write_back(std::size_t begin, std::size_t end) const {
            for (std::size_t range = begin; range < end; ++range) {
                MovedRange const& moved = parameters[range];
                std::copy_n(moved.copy, moved.bytes, moved.own);
            }
        }
    };

    Queue _queue{};
    std::size_t _parameters = 0;
    std::size_t _rows_used = 0;
    Table _slices{};
    std::vector<Event> _updated{};   ///< by bucket
    std::unique_ptr<Copies> _copies; ///< null by default
};

} // namespace ZERO_NAMESPACE::detail
