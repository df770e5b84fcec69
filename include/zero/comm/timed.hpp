#pragma once

#include "../backend/detail/timed_region.hpp"
#include "../backend/timed_backend.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/timeline.hpp"
#include "collective_tag.hpp"
#include "communicator.hpp"
#include "detail/decorator.hpp"
#include "traffic_count.hpp"

#include <cstring>
#include <memory>
#include <utility>

namespace ZERO_NAMESPACE {

/// @brief A communicator that records its collectives, and everything that an engine on it
/// enqueues, in a `Timeline`. An engine on another communicator contains no code for it.
///
/// The results have the same bits. It has the operations of the other communicator, the optional
/// ones included. Construct and destroy it on the thread of its rank, which records from then on;
/// if a thread has several, the last one wins. Other threads that call the engine need a
/// `TimelineScope`.
template <class C>
class Timed : public detail::CommunicatorDecorator<Timed<C>, C, TimedBackend<typename C::Backend>> {
    using Base = detail::CommunicatorDecorator<Timed, C, TimedBackend<typename C::Backend>>;
    friend Base;

public:
    using Queue = typename Base::Queue;

    /// @param inner the communicator that moves the data; must outlive this object
    /// @param timeline null: nothing is recorded; must outlive this object
    Timed(C& inner, Timeline* timeline) : Base(inner), _timeline(timeline), _scope(timeline) {
        if (timeline != nullptr) {
            QueueClock<typename C::Backend>::prepare(*timeline);
        }
    }

    /// @brief An engine keeps a thread for its queue, whose waits are what a timeline shows.
    std::size_t ranks_in_process() const = delete;

    /// @brief Returns the timeline; null if nothing is recorded.
    [[nodiscard]] Timeline* timeline() const noexcept { return _timeline; }

    /// @brief See `SplittableCommunicator`. The result records in the same timeline.
    [[nodiscard]] Timed split(int color, int key)
        requires SplittableCommunicator<C>
    {
        return Timed(std::unique_ptr<C>(new C(this->inner().split(color, key))), _timeline);
    }

    /// @brief Records one span for all collectives of a group.
    template <class Body>
        requires detail::GroupsGathers<C>
    void grouped(Queue queue, Body const& body) {
        Region const region(queue, TimelinePhase::publish, "group of buckets", Region::no_index);
        _group = region.span();
        _is_grouping = true;
        try {
            Base::grouped(queue, body);
        } catch (...) {
            _is_grouping = false;
            throw;
        }
        _is_grouping = false;
        if (_group != nullptr) {
            _group->is_collective = true;
            _group->call_stops_model = !is_on_device;
        }
    }

private:
    using Region = detail::TimedRegion<typename C::Backend>;

    Timed(std::unique_ptr<C> part, Timeline* timeline)
        : Base(*part), _part(std::move(part)), _timeline(timeline), _scope(Timeline::of_thread()) {}

    // a member, because nvcc 13.0 rejects the constraint inside a function template
    static constexpr bool is_on_device = requires { requires C::Backend::is_device; };

    template <class T, class Forward>
    void around(detail::DecoratedCall const& call, Queue queue, Forward const& forward) {
        if (_is_grouping) {
            if (_group != nullptr) {
                _group->bytes += call.count * sizeof(T);
            }
            forward();
            return;
        }
        // The index of an all-reduce of integers may be a hash.
        bool const has_index = call.kind != CollectiveKind::integers;
        Region const region(queue, phase_of(call), call.tag.what,
                            has_index ? call.tag.index : Region::no_index);
        if (TimelineSpan* const span = region.span(); span != nullptr) {
            span->is_collective = true;
            span->call_stops_model = !is_on_device;
            span->bytes = call.count * sizeof(T);
            std::strncpy(span->parameter.data(), call.tag.parameter, span->parameter.size() - 1);
        }
        forward();
    }

    static TimelinePhase phase_of(detail::DecoratedCall const& call) noexcept {
        switch (call.tag.purpose) {
        case CollectivePurpose::gather: return TimelinePhase::gather;
        case CollectivePurpose::publish: return TimelinePhase::publish;
        case CollectivePurpose::reduce: return TimelinePhase::reduce;
        case CollectivePurpose::decide: return TimelinePhase::decide;
        case CollectivePurpose::other: break;
        }
        switch (call.kind) {
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::exchange:
        case CollectiveKind::all_reduce: return TimelinePhase::reduce;
        case CollectiveKind::integers: return TimelinePhase::decide;
        case CollectiveKind::all_gather:
        case CollectiveKind::broadcast: break;
        }
        return TimelinePhase::publish;
    }

    std::unique_ptr<C> _part; ///< what a split owns
    Timeline* _timeline;
    TimelineSpan* _group = nullptr; ///< of the group in progress; null: not recorded
    bool _is_grouping = false;
    TimelineScope _scope;
};

} // namespace ZERO_NAMESPACE
